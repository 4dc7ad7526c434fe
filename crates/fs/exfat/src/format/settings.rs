//! The options for creating volumes. Their names are words of mkfs.exfat; its letters precede them.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use obento_clusters::format::random_serial;
use obento_driver::{Allowed, FormatError, FormatOptions, Setting};

use super::geometry::ALIGN;
use crate::name::{to_bytes, to_units};
use crate::tables::LABEL_MAX;

const CLUSTER: Allowed = Allowed::PowerOfTwo(512, 32 << 20);
const SECTOR: Allowed = Allowed::PowerOfTwo(512, 4096);
const BOUNDARY: Allowed = Allowed::PowerOfTwo(512, 1 << 31);
const VOLUME_ID: Allowed = Allowed::Text("eight hexadecimal digits, like 1234-ABCD");
const LABEL: Allowed = Allowed::Text("UTF-8 text of at most 11 UTF-16 units");

pub const SETTINGS: &[Setting] = &[
    // -c
    Setting { name: "cluster_size", takes: CLUSTER },
    // -s
    Setting { name: "sector_size", takes: SECTOR },
    // -b
    Setting { name: "boundary_align", takes: BOUNDARY },
    // --pack-bitmap
    Setting { name: "pack_bitmap", takes: Allowed::Nothing },
    // -f
    Setting { name: "full_format", takes: Allowed::Nothing },
    Setting { name: "volume_id", takes: VOLUME_ID },
];

/// The requested settings.
pub struct Settings {
    /// Size of a sector in bytes.
    pub sector_size: u32,
    /// Size of a cluster in bytes; `None` for the default.
    pub cluster_size: Option<u32>,
    /// Alignment of the FAT and the clusters.
    pub align: u64,
    /// Whether the bitmap is placed beside the FAT.
    pub pack_bitmap: bool,
    /// Whether the whole volume is zeroed, and not only the parts in use.
    pub is_full: bool,
    /// The serial number.
    pub serial: u32,
    /// The GUID, if requested.
    pub guid: Option<[u8; 16]>,
    /// The label.
    pub label: Vec<u16>,
}

/// Parses a number of bytes with an optional suffix `K` or `M`, as mkfs.exfat does.
fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (text.get(..at)?, 10_u32),
        (at, 'm' | 'M') => (text.get(..at)?, 20),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift)
}

fn volume_id(text: &str) -> Option<u32> {
    let digits: String = text.chars().filter(|&digit| digit != '-').collect();
    u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() <= 8)
}

impl Settings {
    /// Parses `options`. Fails with the first of these errors: a feature; a setting that does not exist or has an
    /// invalid value; an invalid label.
    pub fn parse(options: &FormatOptions) -> Result<Self, FormatError> {
        let mut this = Self {
            sector_size: 512,
            cluster_size: None,
            align: ALIGN,
            pack_bitmap: false,
            is_full: false,
            serial: 0,
            guid: options.uuid,
            label: Vec::new(),
        };
        let mut serial = None;
        options.each_setting(SETTINGS, |setting, value| match setting.name {
            "volume_id" => volume_id(value).map(|id| serial = Some(id)),
            _ => this.set(setting, value),
        })?;
        this.serial = serial.unwrap_or_else(|| random_serial(options));
        if let Some(size) = options.block_size {
            let allowed = CLUSTER.allows(size.into());
            this.cluster_size = Some(size).filter(|_| allowed);
            this.cluster_size.ok_or_else(|| FormatError::bad("block size", &size.to_string(), CLUSTER))?;
        }
        if this.cluster_size.is_some_and(|size| size < this.sector_size) {
            return Err(FormatError::Excludes { what: "cluster_size", other: "larger sectors" });
        }
        this.set_label(&options.label)?;
        Ok(this)
    }

    /// Applies a setting. Returns `None` for an invalid value.
    fn set(&mut self, setting: &Setting, value: &str) -> Option<()> {
        let flag = match setting.name {
            "pack_bitmap" => Some(&mut self.pack_bitmap),
            "full_format" => Some(&mut self.is_full),
            _ => None,
        };
        if let Some(flag) = flag {
            *flag = true;
            return value.is_empty().then_some(());
        }
        let number = size(value).filter(|&number| setting.takes.allows(number))?;
        let narrow = u32::try_from(number).ok();
        match setting.name {
            "cluster_size" => self.cluster_size = narrow,
            "sector_size" => self.sector_size = narrow?,
            _ => self.align = number,
        }
        Some(())
    }

    fn set_label(&mut self, label: &[u8]) -> Result<(), FormatError> {
        let units = to_units(label).ok().filter(|units| units.len() <= LABEL_MAX);
        let refused = || FormatError::bad("label", &String::from_utf8_lossy(label), LABEL);
        self.label = units.ok_or_else(refused)?;
        Ok(())
    }

    /// Returns the label in UTF-8.
    pub fn shown_label(&self) -> Vec<u8> {
        to_bytes(self.label.iter().copied())
    }
}
