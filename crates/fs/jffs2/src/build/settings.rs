//! The settings of a new image, with the names of the long options of `mkfs.jffs2`.

use alloc::string::ToString as _;

use obento_driver::{Allowed, FormatError, FormatOptions, Setting};

use crate::codec::number;
use crate::order::Order;
use crate::raw;

const ERASE_BLOCK: Allowed = Allowed::PowerOfTwo(4096, 64 << 20);
const PAGE: Allowed = Allowed::PowerOfTwo(256, 64 << 10);
const MARKER: Allowed = Allowed::Range(12, 2048);
const COMPRESSORS: Allowed = Allowed::Words(&["zlib", "rtime", "none", "smallest"]);

/// The settings.
pub const SETTINGS: &[Setting] = &[
    Setting { name: "eraseblock", takes: ERASE_BLOCK },
    Setting { name: "pagesize", takes: PAGE },
    Setting { name: "cleanmarker", takes: MARKER },
    Setting { name: "no-cleanmarkers", takes: Allowed::Nothing },
    Setting { name: "little-endian", takes: Allowed::Nothing },
    Setting { name: "big-endian", takes: Allowed::Nothing },
    Setting { name: "pad", takes: Allowed::Nothing },
    Setting { name: "compressor", takes: COMPRESSORS },
];

/// The shape of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Byte order.
    pub order: Order,
    /// Length of an erase block.
    pub erase_block: u32,
    /// Most bytes of a file in a node.
    pub page: u32,
    /// Length of a clean marker, or 0 for none.
    pub marker: u32,
    /// Whether the last erase block is filled.
    pub pads: bool,
    /// Codecs to try: the shortest result is used.
    pub codecs: &'static [u8],
}

impl Shape {
    /// Reads the settings.
    ///
    /// # Errors
    ///
    /// 1. Those of [`FormatOptions::each_setting`].
    /// 2. `Needs`: a page does not fit an erase block.
    pub fn read(options: &FormatOptions) -> Result<Self, FormatError> {
        let mut shape = Self {
            order: Order::Little,
            erase_block: 64 << 10,
            page: 4096,
            marker: 12,
            pads: false,
            codecs: &[number::ZLIB],
        };
        if let Some(page) = options.block_size {
            let page = Some(page).filter(|&page| PAGE.allows(page.into()));
            let given = options.block_size.unwrap_or(0).to_string();
            shape.page = page.ok_or_else(|| FormatError::bad("block size", &given, PAGE))?;
        }
        options.each_setting(SETTINGS, |setting, value| shape.set(setting, value))?;
        // A page is split if it does not fit the rest of a block, but not into parts that are shorter than a header.
        let least =
            u64::from(shape.marker).saturating_add(4096_u64.min(shape.page.into())).saturating_add(128);
        if least > shape.erase_block.into() {
            return Err(FormatError::Needs { what: "this page size", needs: "larger erase blocks" });
        }
        Ok(shape)
    }

    fn set(&mut self, setting: &Setting, value: &str) -> Option<()> {
        let number = || size(value).filter(|&number| setting.takes.allows(number.into()));
        match setting.name {
            "eraseblock" => self.erase_block = number()?,
            "pagesize" => self.page = number()?,
            "cleanmarker" => self.marker = number()?,
            "no-cleanmarkers" => self.marker = 0,
            "little-endian" => self.order = Order::Little,
            "big-endian" => self.order = Order::Big,
            "pad" => self.pads = true,
            _ => {
                self.codecs = match value {
                    "zlib" => &[number::ZLIB],
                    "rtime" => &[number::RTIME],
                    "none" => &[],
                    "smallest" => &[number::ZLIB, number::RTIME],
                    _ => return None,
                }
            }
        }
        let takes_none = setting.takes == Allowed::Nothing && !value.is_empty();
        (!takes_none).then_some(())
    }

    /// Returns the most bytes of a node.
    pub fn node_max(&self) -> u64 {
        u64::from(self.erase_block).saturating_sub(self.marker.next_multiple_of(4).into())
    }

    /// Returns the most bytes of an extended attribute, without its name.
    pub fn value_max(&self, name: usize) -> u64 {
        let head = obento_base::wire::to_u64(raw::XATTR.saturating_add(name)).saturating_add(4);
        self.node_max().saturating_sub(head).min(u16::MAX.into())
    }
}

/// Reads a number as `mkfs.jffs2` does, with `KiB` or `MiB` behind it, or with a unit in lower case as in other sizes.
fn size(text: &str) -> Option<u32> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "" => 1,
        "K" | "k" | "KiB" | "kiB" => 1 << 10,
        "M" | "m" | "MiB" | "miB" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u32>().ok()?.checked_mul(unit)
}
