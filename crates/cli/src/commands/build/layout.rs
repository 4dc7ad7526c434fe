//! The layout file of a disk, as `obento help layout` describes it.

use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use obento::Registry;
use obento::build::{
    Blob, BuildSettings, DiskSettings, EmptyMaker, PartitionContent, PartitionSettings, PartitionSize,
};
use obento::engine::types::Type;
use obento::host::UnpackLimits;
use obento::partition::{DiskId, Guid, PartitionType, Scheme, table_end};

use super::engine;
use super::keys::{Keys, Source};
use super::volume::VolumeArgs;
use crate::commands::mkfs::own;
use crate::commands::setfattr::bytes_of_hex;
use crate::context::Context;
use crate::input;
use crate::parse::attributes;
use crate::parse::size::{is_too_large, size_in};
use crate::parse::time::source_date_epoch;
use crate::parse::uuid::uuid;
use crate::report::{Report, subject};

/// The most bytes of a file that describes a disk.
const MAX_LEN: u64 = 1 << 20;

/// All keys of the root, of `[disk]` and of `[[blob]]`.
const ROOT_KEYS: &[&str] = &["disk", "partition", "blob"];
const DISK_KEYS: &[&str] = &["table", "size", "uuid"];
const BLOB_KEYS: &[&str] = &["file", "offset"];

/// All keys of `[[partition]]`, some of which only some contents have.
pub const PARTITION_KEYS: &[&str] = &[
    "add",
    "attributes",
    "block-size",
    "chmod",
    "content",
    "contents",
    "exclude",
    "extended",
    "features",
    "free",
    "from",
    "fs-label",
    "fs-uuid",
    "image",
    "inode-size",
    "inodes",
    "label",
    "map-gid",
    "map-uid",
    "minimize",
    "number",
    "offset",
    "owner",
    "reserved-percent",
    "salt",
    "size",
    "type",
    "uuid",
    "xattrs",
];

/// Reads the file `path`, or standard input for `-`. Fails if the file cannot be read, or for a value that
/// cannot be used, with its line and key.
pub fn read(path: &Path, threads: usize, context: &Context) -> Result<DiskSettings, Report> {
    let shown = path.as_os_str().as_encoded_bytes();
    let opened: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(input::open("cannot open", path)?),
    };
    let mut text = String::new();
    let read = opened.take(MAX_LEN + 1).read_to_string(&mut text);
    read.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => Report::on("cannot use the layout", shown, "not a text file")
            .help("name a layout in TOML; 'obento build --print-layout DISK' prints that of a disk"),
        _ => Report::on("cannot read", shown, error),
    })?;
    if text.len() as u64 > MAX_LEN {
        return Err(Report::on("cannot use", shown, format!("larger than {MAX_LEN} bytes")));
    }
    let source = Source::new(path, &text);
    let parsed = source.parse()?;
    let root = Keys::new(&source, 0..0, parsed.get_ref());
    root.expect_known(ROOT_KEYS)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut settings = match root.table("disk")? {
        Some(keys) => disk(&keys)?,
        None => DiskSettings::new(Scheme::Gpt),
    };
    let partitions = root.tables("partition")?;
    let (blobs, scheme) = (root.tables("blob")?, settings.scheme);
    settings.blobs = blobs.iter().map(|keys| blob(keys, folder, scheme)).collect::<Result<_, _>>()?;
    root.finish()?;
    if partitions.is_empty() {
        return Err(root.wrong("partition", "at least one is required; write [[partition]]"));
    }
    let (unpack, registry) = (context.options().unpack(), context.registry());
    let labels = partitions.iter().map(|keys| keys.text("label")).collect::<Result<_, _>>()?;
    let is_piped = path == Path::new("-");
    let context = Reader { scheme: settings.scheme, folder, is_piped, threads, unpack, registry, labels };
    settings.partitions = partitions.iter().map(|keys| context.partition(keys)).collect::<Result<_, _>>()?;
    let rest = |partition: &PartitionSettings| partition.size == PartitionSize::Rest;
    let mut rests = partitions.iter().zip(&settings.partitions).filter(|(_, held)| rest(held));
    match (rests.next(), rests.next()) {
        (Some((keys, _)), _) if settings.size.is_none() => {
            let report = keys.wrong("size", "'rest' requires the size of the disk");
            return Err(report.help("set this size in [disk]: size = \"4G\""));
        }
        (Some(_), Some((keys, _))) => {
            return Err(keys.wrong("size", "another partition uses the rest already"));
        }
        _ => {}
    }
    Ok(settings)
}

/// The table `[disk]`.
fn disk(keys: &Keys<'_, '_>) -> Result<DiskSettings, Report> {
    keys.expect_known(DISK_KEYS)?;
    let scheme = match keys.text("table")?.as_deref() {
        None | Some("gpt") => Scheme::Gpt,
        Some("mbr" | "dos") => Scheme::Mbr,
        Some(_) => return Err(keys.wrong("table", "must be \"gpt\" or \"mbr\"")),
    };
    let mut settings = DiskSettings::new(scheme);
    settings.size = match keys.text("size")?.as_deref() {
        None | Some("auto") => None,
        Some(text) => Some(length(keys, "size", text)?),
    };
    settings.id = match (keys.text("uuid")?, scheme) {
        (None, _) => None,
        (Some(text), Scheme::Gpt) => Some(DiskId::Guid(guid(keys, "uuid", &text)?)),
        (Some(text), Scheme::Mbr) => {
            let number = u32::from_str_radix(text.strip_prefix("0x").unwrap_or(&text), 16);
            let wrong = |_| keys.wrong("uuid", "an MBR has a number of 8 hexadecimal digits: \"0x1234abcd\"");
            Some(DiskId::Signature(number.map_err(wrong)?))
        }
    };
    keys.finish()?;
    Ok(settings)
}

fn length(keys: &Keys<'_, '_>, key: &str, text: &str) -> Result<u64, Report> {
    let len = size_in(text, 1).filter(|&len| len > 0);
    len.ok_or_else(|| {
        let why = if is_too_large(text) { ": the size is too large" } else { "" };
        keys.wrong(key, format!("invalid size {}{why}", subject(text))).help("write a size such as 10G")
    })
}

/// A table `[[blob]]`.
fn blob(keys: &Keys<'_, '_>, folder: &Path, scheme: Scheme) -> Result<Blob, Report> {
    keys.expect_known(BLOB_KEYS)?;
    let path = folder.join(keys.required("file")?);
    let text = keys.required("offset")?;
    let offset = offset(keys, &text)?;
    let first = table_end(scheme);
    if scheme == Scheme::Gpt && offset < first {
        let report = keys.wrong("offset", format!("a GPT occupies the first {first} bytes"));
        let help = format!("set table = \"mbr\" in [disk], or use an offset of at least {first}");
        return Err(report.help(help));
    }
    keys.finish()?;
    Ok(Blob { path, offset })
}

fn offset(keys: &Keys<'_, '_>, text: &str) -> Result<u64, Report> {
    let wrong = || {
        keys.wrong("offset", format!("invalid offset {}", subject(text))).help("write an offset such as 8KiB")
    };
    size_in(text, 1).ok_or_else(wrong)
}

fn guid(keys: &Keys<'_, '_>, key: &str, text: &str) -> Result<Guid, Report> {
    Guid::parse(text).ok_or_else(|| {
        keys.wrong(key, format!("invalid UUID {}", subject(text)))
            .help("write a UUID such as 01234567-89ab-cdef-0123-456789abcdef")
    })
}

/// What all partitions of a file have in common.
struct Reader<'a> {
    scheme: Scheme,
    /// What paths are counted from.
    folder: &'a Path,
    /// Whether the layout comes from standard input.
    is_piped: bool,
    threads: usize,
    unpack: UnpackLimits,
    registry: &'a Registry,
    /// The labels of all partitions.
    labels: Vec<Option<String>>,
}

impl Reader<'_> {
    /// A table `[[partition]]`.
    fn partition(&self, keys: &Keys<'_, '_>) -> Result<PartitionSettings, Report> {
        keys.expect_known(PARTITION_KEYS)?;
        let kind = self.kind(keys)?;
        let size = match keys.text("size")?.as_deref() {
            None | Some("auto") => PartitionSize::Auto,
            Some("rest") => PartitionSize::Rest,
            Some(text) => PartitionSize::Bytes(length(keys, "size", text)?),
        };
        let number = keys.text("number")?.map(|text| {
            text.parse().map_err(|_| {
                keys.wrong("number", format!("invalid number {}", subject(text)))
                    .help("write a number such as \"14\"")
            })
        });
        let number = number.transpose()?;
        let offset = keys.text("offset")?.map(|text| offset(keys, &text)).transpose()?;
        let uuid = keys.text("uuid")?.map(|text| guid(keys, "uuid", &text)).transpose()?;
        let name = keys.text("label")?.unwrap_or_default();
        if self.scheme == Scheme::Mbr {
            let mut of_gpt = ["uuid", "label", "number"].into_iter().filter(|key| keys.has(key));
            if let Some(key) = of_gpt.next() {
                let report = keys.wrong(key, "not supported for partitions of an MBR");
                return Err(report.help("omit this key, or set table = \"gpt\" in [disk]"));
            }
        }
        let attributes = self.attributes(keys)?;
        let content = keys.text("content")?.unwrap_or_else(|| "empty".into());
        let content = self.content(keys, &content)?;
        if matches!(content, PartitionContent::Empty) && keys.has("from") {
            return Err(keys.wrong("from", "this key requires a file system, such as content = \"ext4\""));
        }
        if matches!(content, PartitionContent::Empty) && keys.has("contents") {
            let why = "this key names the directory of a manifest; the type of the file system is 'content'";
            return Err(keys.wrong("contents", why).help("did you mean 'content'?"));
        }
        // A key of another content may be the reason why the size is missing.
        keys.finish()?;
        let needs_size = matches!(content, PartitionContent::Empty | PartitionContent::Swap { .. });
        if needs_size && size == PartitionSize::Auto {
            return Err(keys.wrong("size", "an empty partition or a swap area requires a size"));
        }
        Ok(PartitionSettings { number, offset, kind, name, uuid, attributes, size, content })
    }

    fn kind(&self, keys: &Keys<'_, '_>) -> Result<PartitionType, Report> {
        let text = keys.required("type")?;
        PartitionType::parse(&text, self.scheme).ok_or_else(|| {
            let why = format!("unknown type {} for {}", subject(text), self.scheme);
            let other = if self.scheme == Scheme::Gpt { "a GUID" } else { "a number such as 0x83" };
            keys.wrong("type", why).help(format!("use a name that 'obento help layout' lists, or {other}"))
        })
    }

    fn attributes(&self, keys: &Keys<'_, '_>) -> Result<u64, Report> {
        let mut bits = 0;
        for text in keys.texts("attributes")? {
            let bit = attributes::bit(&text, self.scheme).ok_or_else(|| {
                let why = format!("unknown attribute {}", subject(text));
                keys.wrong("attributes", why).help(attributes::known(self.scheme))
            })?;
            bits |= 1 << bit;
        }
        Ok(bits)
    }

    fn content(&self, keys: &Keys<'_, '_>, content: &str) -> Result<PartitionContent, Report> {
        match content.split_once(':') {
            Some(("raw", path)) if !path.is_empty() => {
                return Ok(PartitionContent::Raw(self.folder.join(path)));
            }
            Some(("verity", label)) => return self.verity(keys, label),
            Some(_) => return Err(keys.wrong("content", "must be \"raw:FILE\", \"verity:LABEL\" or a type")),
            None => {}
        }
        match content {
            "empty" => Ok(PartitionContent::Empty),
            "swap" => {
                let label = keys.text("fs-label")?.unwrap_or_default().into_bytes();
                Ok(PartitionContent::Swap { label, uuid: fs_uuid(keys)? })
            }
            fs_type => {
                let volume = volume(keys, fs_type)?;
                let sources = volume.sources(self.folder).map_err(|report| {
                    let key = if keys.has("from") { "from" } else { "add" };
                    let report = keys.wrong(key, report);
                    match self.is_piped {
                        true => report.also("paths start at the current directory"),
                        false => report.also("paths start at the directory of the layout file"),
                    }
                })?;
                let settings = Box::new(self.settings(keys, &volume)?);
                Ok(match self.registry.engine_type(fs_type) {
                    None => PartitionContent::Volume { sources, settings },
                    Some(kind) => {
                        let maker = maker(keys, &volume, kind)?;
                        PartitionContent::Filled { sources, settings, maker }
                    }
                })
            }
        }
    }

    /// A hash tree of the partition with this label.
    fn verity(&self, keys: &Keys<'_, '_>, label: &str) -> Result<PartitionContent, Report> {
        let mut named = (0..).zip(&self.labels).filter(|(_, other)| other.as_deref() == Some(label));
        let shown = subject(label);
        let data = match (named.next(), named.next()) {
            (Some((at, _)), None) => at,
            (None, _) => return Err(keys.wrong("content", format!("no partition has the label {shown}"))),
            (Some(_), Some(_)) => {
                return Err(keys.wrong("content", format!("several partitions have the label {shown}")));
            }
        };
        let wrong = || keys.wrong("salt", "must consist of pairs of hexadecimal digits");
        let salt =
            keys.text("salt")?.map(|text| bytes_of_hex(text.as_bytes()).ok_or_else(wrong)).transpose()?;
        Ok(PartitionContent::Verity { data, salt, uuid: fs_uuid(keys)? })
    }

    fn settings(&self, keys: &Keys<'_, '_>, volume: &VolumeArgs) -> Result<BuildSettings, Report> {
        let settings = volume.settings().map_err(|bad| {
            let key = match bad.option {
                "label" => "fs-label",
                "uuid" => "fs-uuid",
                option => option,
            };
            keys.wrong(key, bad)
        });
        let mut settings = settings?;
        settings.epoch = source_date_epoch()?;
        settings.threads = self.threads;
        settings.unpack = self.unpack;
        settings.contents = volume.contents.iter().map(|folder| self.folder.join(folder)).collect();
        Ok(settings)
    }
}

/// The key `fs-uuid` of a swap area or a hash tree.
fn fs_uuid(keys: &Keys<'_, '_>) -> Result<Option<[u8; 16]>, Report> {
    let text = keys.text("fs-uuid")?.filter(|text| text != "random");
    let uuid = text.map(|text| uuid(&text)).transpose();
    Ok(uuid
        .map_err(|_| keys.wrong("fs-uuid", "not a UUID such as 01234567-89ab-cdef-0123-456789abcdef"))?
        .flatten())
}

/// Returns the program that creates volumes of a type that Linux fills. Fails if no such program exists on this machine
/// or at all, and for a key that the program does not support.
fn maker(keys: &Keys<'_, '_>, volume: &VolumeArgs, kind: &'static Type) -> Result<EmptyMaker, Report> {
    let maker = engine::maker(kind).map_err(|cause| keys.wrong("content", cause))?;
    if let Some((_, key)) = engine::not_passed(volume, &maker) {
        let cause = format!("not available for this type, which {} creates", maker.tool.program);
        return Err(keys.wrong(key, cause));
    }
    if let Some((cause, hint)) = engine::without_kernel(kind) {
        return Err(hint.into_iter().fold(keys.wrong("content", cause), Report::help));
    }
    let program = own::program(&maker, volume.label.as_ref(), "cannot create", volume.fs_type.as_bytes());
    let program = program.map_err(|report| keys.wrong("content", report))?;
    Ok(own::maker(program, &maker))
}

/// Returns the maximum number of entries of the sources.
fn max_files(keys: &Keys<'_, '_>) -> Result<Option<u64>, Report> {
    let Some(text) = keys.text("max-files")? else { return Ok(None) };
    let count = text.parse().ok().filter(|&count: &u64| count > 0);
    count.map(Some).ok_or_else(|| keys.wrong("max-files", "not a number of files"))
}

/// The options of a file system, under the names that the command line has for them.
fn volume(keys: &Keys<'_, '_>, fs_type: &str) -> Result<VolumeArgs, Report> {
    let minimize = keys.is_set("minimize")?;
    let free = keys.text("free")?;
    if minimize && free.is_some() {
        return Err(keys.wrong("free", "cannot be combined with minimize"));
    }
    if free.is_some() && keys.text("size")?.is_some_and(|size| size != "auto") {
        return Err(keys.wrong("free", "cannot be combined with size: the size determines the free space"));
    }
    Ok(VolumeArgs {
        fs_type: fs_type.into(),
        from: keys.names("from")?,
        add: keys.names("add")?,
        size: "auto".into(),
        free,
        minimize,
        owner: keys.text("owner")?,
        map_uid: keys.texts("map-uid")?,
        map_gid: keys.texts("map-gid")?,
        chmod: keys.text("chmod")?,
        exclude: keys.names("exclude")?,
        xattrs: keys.is_set("xattrs")?,
        image: keys.text("image")?,
        contents: keys.names("contents")?.into_iter().map(PathBuf::from).collect(),
        max_files: max_files(keys)?,
        label: keys.text("fs-label")?.map(OsString::from),
        uuid: keys.text("fs-uuid")?,
        block_size: keys.text("block-size")?,
        features: keys.texts("features")?,
        extended: keys.texts("extended")?,
        inodes: keys.text("inodes")?,
        inode_size: keys.text("inode-size")?,
        reserved_percent: keys.text("reserved-percent")?,
    })
}
