//! The options for creating volumes. Their names are words of the manual of mkfs.fat; the letters of mkfs.fat precede
//! them.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use obento_clusters::format::random_serial;
use obento_driver::{Allowed, FormatError, FormatOptions, Setting};

use super::geometry::RequestedGeometry;
use super::{NO_NAME, boot};
use crate::name::CodePage;
use crate::super_block::Width;

const FAT: Allowed = Allowed::Words(&["12", "16", "32"]);
const PER_CLUSTER: Allowed = Allowed::PowerOfTwo(1, 128);
const SECTOR: Allowed = Allowed::PowerOfTwo(512, 4096);
const RESERVED: Allowed = Allowed::Range(1, 0xffff);
const FATS: Allowed = Allowed::Range(1, 4);
const ROOT_ENTRIES: Allowed = Allowed::Range(16, 32_768);
const HIDDEN: Allowed = Allowed::Range(0, 0xffff_ffff);
const MEDIA: Allowed = Allowed::Text("0xf0, or 0xf8 to 0xff");
const DRIVE: Allowed = Allowed::Range(0, 0xff);
const GEOMETRY: Allowed = Allowed::Text("HEADS/SECTORS, numbers from 1 to 65535");
const BACKUP: Allowed = Allowed::Range(0, 0xffff);
const VOLUME_ID: Allowed = Allowed::Text("up to eight hexadecimal digits");
const CODE_PAGE: Allowed = Allowed::Words(&["437", "850", "1252"]);
const LABEL: Allowed = Allowed::Text(
    "at most eleven characters of the code page, none of them *?.,;:/\\|+=<>[]\", and no leading space",
);
const MESSAGE: Allowed = Allowed::Text("text of Latin-1 characters, one for each byte");
const BAD_BLOCKS: Allowed = Allowed::Text("numbers of blocks of 1024 bytes, separated by spaces");
const CLUSTER: Allowed = Allowed::PowerOfTwo(512, 512 << 10);

pub const SETTINGS: &[Setting] = &[
    // -F
    Setting { name: "fat", takes: FAT },
    // -s
    Setting { name: "sectors_per_cluster", takes: PER_CLUSTER },
    // -S
    Setting { name: "sector_size", takes: SECTOR },
    // -R
    Setting { name: "reserved_sectors", takes: RESERVED },
    // -f
    Setting { name: "fats", takes: FATS },
    // -r
    Setting { name: "root_entries", takes: ROOT_ENTRIES },
    // -a
    Setting { name: "no_align", takes: Allowed::Nothing },
    // -h
    Setting { name: "hidden_sectors", takes: HIDDEN },
    // -M
    Setting { name: "media", takes: MEDIA },
    // -D
    Setting { name: "drive_number", takes: DRIVE },
    // -g
    Setting { name: "geometry", takes: GEOMETRY },
    // -b
    Setting { name: "backup_boot_sector", takes: BACKUP },
    // -i
    Setting { name: "volume_id", takes: VOLUME_ID },
    // --codepage
    Setting { name: "codepage", takes: CODE_PAGE },
    // -m
    Setting { name: "message", takes: MESSAGE },
    // -l
    Setting { name: "bad_blocks", takes: BAD_BLOCKS },
    // -c
    Setting { name: "check_blocks", takes: Allowed::Nothing },
    // --mbr
    Setting { name: "mbr", takes: Allowed::Nothing },
];

/// The requested settings.
pub struct Settings {
    /// The requested layout.
    pub wanted: RequestedGeometry,
    /// The serial number.
    pub serial: u32,
    /// The label, padded with spaces, if requested.
    pub label: Option<[u8; 11]>,
    /// Sectors before the volume.
    pub hidden: u32,
    /// Drive number of the BIOS.
    pub drive: Option<u8>,
    /// The message of the boot sector, as it is stored; `None` for the default.
    pub message: Option<Vec<u8>>,
    /// Bad blocks, of 1024 bytes.
    pub bad_blocks: Vec<u64>,
    /// Whether all clusters are read, and marked as bad if they cannot be.
    pub check_blocks: bool,
    /// Whether the boot sector contains a partition table with one partition, which is the volume.
    pub mbr: bool,
    page: CodePage,
}

impl Settings {
    /// Parses `options`. Fails with the first of these errors: a feature; a setting that does not exist or has an
    /// invalid value; an invalid label.
    pub fn parse(options: &FormatOptions) -> Result<Self, FormatError> {
        let mut this = Self {
            wanted: RequestedGeometry::default(),
            serial: 0,
            label: None,
            hidden: 0,
            drive: None,
            message: None,
            bad_blocks: Vec::new(),
            check_blocks: false,
            mbr: false,
            page: CodePage::Cp850,
        };
        let mut serial = options.uuid.map(|[a, b, c, d, ..]| u32::from_be_bytes([a, b, c, d]));
        options.each_setting(SETTINGS, |setting, value| match setting.name {
            "volume_id" => volume_id(value).map(|id| serial = Some(id)),
            _ => this.set(setting, value),
        })?;
        this.serial = serial.unwrap_or_else(|| random_serial(options));
        if let Some(size) = options.block_size {
            this.cluster_size(size)?;
        }
        this.set_label(&options.label)?;
        Ok(this)
    }

    /// Applies a setting. Returns `None` for an invalid value.
    fn set(&mut self, setting: &Setting, value: &str) -> Option<()> {
        let wanted = &mut self.wanted;
        let number = number(value).filter(|&number| setting.takes.allows(number));
        match setting.name {
            "fat" => {
                wanted.width = Some(match value {
                    "12" => Width::Fat12,
                    "16" => Width::Fat16,
                    "32" => Width::Fat32,
                    _ => return None,
                });
            }
            "sectors_per_cluster" => wanted.per_cluster = Some(u8::try_from(number?).ok()?),
            "sector_size" => wanted.sector_size = u32::try_from(number?).ok()?,
            "reserved_sectors" => wanted.reserved = Some(u16::try_from(number?).ok()?),
            "fats" => wanted.fats = u8::try_from(number?).ok()?,
            "root_entries" => wanted.root_entries = Some(u16::try_from(number?).ok()?),
            "no_align" => {
                wanted.aligned = false;
                return value.is_empty().then_some(());
            }
            "hidden_sectors" => self.hidden = u32::try_from(number?).ok()?,
            "media" => {
                let media = u8::try_from(number?).ok()?;
                wanted.media = Some(Some(media).filter(|&media| matches!(media, 0xf0 | 0xf8..))?);
            }
            "drive_number" => self.drive = Some(u8::try_from(number?).ok()?),
            "geometry" => {
                let (heads, sectors) = value.split_once('/')?;
                let part = |text| u16::try_from(self::number(text)?).ok().filter(|&count| count > 0);
                wanted.disk = Some((part(heads)?, part(sectors)?));
            }
            "backup_boot_sector" => wanted.backup = Some(u16::try_from(number?).ok()?),
            "message" => self.message = Some(boot::message(value)?),
            "bad_blocks" => {
                let numbers = value.split_ascii_whitespace().map(|word| word.parse().ok());
                self.bad_blocks = numbers.collect::<Option<_>>()?;
            }
            "check_blocks" => {
                self.check_blocks = true;
                return value.is_empty().then_some(());
            }
            "mbr" => {
                self.mbr = true;
                return value.is_empty().then_some(());
            }
            "codepage" => self.page = CodePage::of_number(u16::try_from(number?).ok()?).ok()?,
            _ => return None,
        }
        Some(())
    }

    /// Sets the size of a cluster in bytes. Other formats call it the block size.
    fn cluster_size(&mut self, size: u32) -> Result<(), FormatError> {
        let per_cluster =
            size.checked_div(self.wanted.sector_size).and_then(|count| u8::try_from(count).ok());
        let per_cluster = per_cluster.filter(|count| count.is_power_of_two() && *count <= 128);
        let fits = |_: &u8| size.is_power_of_two();
        let per_cluster = per_cluster
            .filter(fits)
            .ok_or_else(|| FormatError::bad("block size", &size.to_string(), CLUSTER))?;
        self.wanted.per_cluster = Some(per_cluster);
        Ok(())
    }

    fn set_label(&mut self, label: &[u8]) -> Result<(), FormatError> {
        if label.trim_ascii().is_empty() {
            return Ok(());
        }
        let shown = || String::from_utf8_lossy(label).into_owned();
        let refused = || FormatError::bad("label", &shown(), LABEL);
        let units = crate::name::to_units(label).map_err(|_| refused())?;
        let mut bytes = [b' '; 11];
        if units.len() > bytes.len() {
            return Err(refused());
        }
        for (byte, &unit) in bytes.iter_mut().zip(&units) {
            *byte = self.page.encode(unit).ok_or_else(refused)?;
        }
        if !is_label(&bytes) {
            return Err(refused());
        }
        self.label = Some(bytes).filter(|bytes| *bytes != NO_NAME);
        Ok(())
    }

    /// Returns the label without padding.
    pub fn shown_label(&self) -> Vec<u8> {
        self.label.map_or(Vec::new(), |label| crate::name::ShortName(label).to_label(self.page))
    }
}

/// Returns whether a volume may have this label, by the rules of `fsck.fat`. Lower case is allowed.
pub fn is_label(label: &[u8; 11]) -> bool {
    let is_bad = |byte: &u8| *byte < 0x20 || b"*?.,;:/\\|+=<>[]\"".contains(byte);
    label.first() != Some(&b' ') && !label.iter().any(is_bad)
}

/// Parses a number in the syntax of C: `0x` marks base 16.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

/// Parses `1234abcd` or `1234-ABCD`.
pub fn volume_id(text: &str) -> Option<u32> {
    let digits = match text.split_once('-') {
        Some((high, low)) if high.len() == 4 && low.len() == 4 => [high, low].concat(),
        Some(_) => return None,
        None => text.strip_prefix("0x").unwrap_or(text).to_string(),
    };
    let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_number.then(|| u32::from_str_radix(&digits, 16).ok())?
}
