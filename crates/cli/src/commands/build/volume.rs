//! The options of one file system, on the command line or in a layout file: sources, and how they become a volume.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento::base::{FileKind, Mode};
use obento::build::{BuildSettings, BuildSource, IdMap, Input, Owner};
use obento::driver::FreeSpace;
use obento::host::open_input;

use crate::cause::{Cause, Worded};
use crate::change::mode::ModeChange;
use crate::commands::import::MEMBERS;
use crate::commands::mkfs::refused::GivenOptions;
use crate::parse::settings::{split, value_for_driver};
use crate::parse::size::size_in;
use crate::parse::uuid::{is_volume_id, uuid};
use crate::report::{Report, shell_word, subject};

/// The sources and options of a volume.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct VolumeArgs {
    /// Type, such as ext4, vfat, exfat or xfs; 'obento types' lists all
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4")]
    pub fs_type: String,
    /// Contents of the image; later sources replace files of earlier ones
    #[arg(long, value_name = "SRC", num_args = 1..)]
    pub from: Vec<OsString>,
    /// Add a file or directory of the host, SRC, at the path DST in the image
    #[arg(long, value_name = "SRC:DST")]
    pub add: Vec<OsString>,
    /// Size of the volume, or auto for the minimum
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub size: String,
    /// Free space of a volume whose size is auto; the default is 10%
    #[arg(long, value_name = "PERCENT", conflicts_with = "minimize")]
    pub free: Option<String>,
    /// Make the volume as small as possible, without free space or room to grow
    #[arg(long)]
    pub minimize: bool,
    /// Set owner UID:GID, or keep the host's owners
    #[arg(long, value_name = "UID:GID|keep")]
    pub owner: Option<String>,
    /// Store user ID FROM as TO; with COUNT, also the following IDs
    #[arg(long, value_name = "FROM:TO[:COUNT]")]
    pub map_uid: Vec<String>,
    /// Store group ID FROM as TO; with COUNT, also the following IDs
    #[arg(long, value_name = "FROM:TO[:COUNT]")]
    pub map_gid: Vec<String>,
    /// Change permission bits, as chmod(1) does
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    pub chmod: Option<String>,
    /// Omit files that match PATTERN, and everything below them
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,
    /// Include extended attributes of host directories
    #[arg(long)]
    pub xattrs: bool,
    /// Select an image of an OCI layout, or of the output of docker save: a tag, a platform such as
    /// linux/arm64, or a digest
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Allow manifests to refer to files in DIR, and not only in the directory of the manifest
    #[arg(long, value_name = "DIR")]
    pub contents: Vec<PathBuf>,
    /// Refuse sources with more than N entries; the default is 10000000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_files: Option<u64>,
    /// Label
    #[arg(short = 'L', long, value_name = "TEXT")]
    pub label: Option<OsString>,
    /// UUID, or clear (zeros); for vfat and exfat a volume ID such as 1234-ABCD
    #[arg(short = 'U', long, value_name = "UUID")]
    pub uuid: Option<String>,
    /// Block size in bytes
    #[arg(short, long, value_name = "BYTES")]
    pub block_size: Option<String>,
    /// Features to add, or with ^ to remove, separated by commas
    #[arg(short = 'O', long, value_name = "[^]FEATURE", allow_hyphen_values = true)]
    pub features: Vec<String>,
    /// Further settings, separated by commas, as in mkfs
    #[arg(short = 'E', long = "extended", value_name = "NAME=VALUE")]
    pub extended: Vec<String>,
    /// Number of inodes
    #[arg(short = 'N', long, value_name = "N")]
    pub inodes: Option<String>,
    /// Inode size in bytes
    #[arg(short = 'I', long, value_name = "BYTES")]
    pub inode_size: Option<String>,
    /// Percentage of blocks reserved for the super user
    #[arg(short = 'm', long, value_name = "PERCENT")]
    pub reserved_percent: Option<String>,
}

/// An invalid value of an option.
#[derive(Debug)]
pub struct InvalidValue {
    /// The option, without its dashes.
    pub option: &'static str,
    text: String,
    example: String,
}

impl InvalidValue {
    fn new(option: &'static str, text: &str, example: impl Display) -> Self {
        Self { option, text: text.into(), example: example.to_string() }
    }

    /// Returns the error for the command line.
    pub fn report(&self) -> Report {
        Report::plain(Worded { text: format!("{self} for --{}", self.option), cause: self })
    }
}

impl Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid value {}", subject(&self.text))
    }
}

impl Cause for InvalidValue {
    fn hint(&self) -> Option<String> {
        Some(format!("write a value such as {}", self.example))
    }
}

impl VolumeArgs {
    /// Returns the sources; paths are relative to `folder`. Fails if a source is invalid.
    pub fn sources(&self, folder: &Path) -> Result<Vec<BuildSource>, Report> {
        let sources = self.from.iter().map(|source| self::source(source, folder));
        let sources = sources.chain(self.add.iter().map(|add| self::add(add, folder)));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        self.expect_used(&sources, folder)?;
        Ok(sources)
    }

    /// Checks that each option has an effect. Fails if both a size and free space are given, and for an option of
    /// sources that are not given.
    fn expect_used(&self, sources: &[BuildSource], folder: &Path) -> Result<(), Report> {
        let refuse = |option: &str, cause: &str, help: &str| Err(Report::new(option, cause).help(help));
        if self.size != "auto" && (self.minimize || self.free.is_some()) {
            let option = if self.minimize { "--minimize" } else { "--free" };
            let cause = "both set the size of the volume";
            return refuse(
                &format!("cannot combine {option} and --size"),
                cause,
                "omit one of the two options",
            );
        }
        let is_layout = |source: &BuildSource| matches!(source, BuildSource::OciLayout(_));
        if self.image.is_some() && !sources.is_empty() && !sources.iter().any(is_layout) {
            let cause = "it selects an image of an OCI layout, and no source is a layout";
            return refuse("cannot use --image", cause, "name the layout: --from oci:PATH");
        }
        let is_manifest =
            |source: &BuildSource| matches!(source, BuildSource::Mtree(_) | BuildSource::Dump(_));
        if !self.contents.is_empty() && !sources.is_empty() && !sources.iter().any(is_manifest) {
            let cause = "it is for manifests, and no source is a manifest";
            return refuse("cannot use --contents", cause, "name the manifest: --from mtree:PATH");
        }
        for contents in &self.contents {
            let path = folder.join(contents);
            let shown = path.as_os_str().as_bytes();
            match std::fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => {}
                Ok(_) => return Err(Report::on("cannot use --contents", shown, "not a directory")),
                Err(error) => return Err(Report::on("cannot use --contents", shown, error)),
            }
        }
        Ok(())
    }

    /// Returns the value of `--add` for the source of `--from` that `text` reports as not being an archive.
    pub fn file_in(&self, text: &str) -> Option<String> {
        let is_named = |source: &&OsString| text.contains(&subject(source.as_bytes()));
        let source = self.from.iter().find(is_named).filter(|_| text.contains("not a tar archive"))?;
        let name = Path::new(source).file_name()?.as_bytes();
        Some(shell_word([source.as_bytes(), b":/", name].concat()))
    }

    fn free(&self) -> &str {
        self.free.as_deref().unwrap_or("10%")
    }

    /// Returns the settings. Fails if a value is invalid.
    pub fn settings(&self) -> Result<BuildSettings, InvalidValue> {
        let mut settings = BuildSettings::new(&self.fs_type);
        settings.size = match self.size.as_str() {
            "auto" => None,
            text => Some(
                size_in(text, 1)
                    .filter(|&len| len > 0)
                    .ok_or_else(|| InvalidValue::new("size", text, "10G or auto"))?,
            ),
        };
        settings.room = match self.minimize {
            true => FreeSpace::Least,
            false => FreeSpace::Free(
                percent(self.free())
                    .ok_or_else(|| InvalidValue::new("free", self.free(), "20%; at most 95%"))?,
            ),
        };
        settings.owner = match self.owner.as_deref() {
            None => Owner::Source,
            Some("keep") => Owner::Keep,
            Some(text) => {
                // chown(2) takes the last number for "no change".
                let id = |text: &str| text.parse().ok().filter(|&id: &u32| id != u32::MAX);
                let ids = text.split_once(':').and_then(|(uid, gid)| Some((id(uid)?, id(gid)?)));
                let (uid, gid) = ids.ok_or_else(|| InvalidValue::new("owner", text, "1000:1000 or keep"))?;
                Owner::Is(uid, gid)
            }
        };
        settings.map_uid = maps("map-uid", &self.map_uid)?;
        settings.map_gid = maps("map-gid", &self.map_gid)?;
        if let Some(text) = &self.chmod {
            let change = ModeChange::parse(text)
                .ok_or_else(|| InvalidValue::new("chmod", text, "u+rwX,go-w or 755"))?;
            let apply = move |kind, mode: Mode| change.apply(mode, kind == FileKind::Directory, 0);
            settings.chmod = Some(Arc::new(apply));
        }
        settings.exclude = self.exclude.iter().map(|pattern| pattern.as_bytes().to_vec()).collect();
        settings.xattrs = self.xattrs;
        settings.image.clone_from(&self.image);
        settings.contents.clone_from(&self.contents);
        settings.max_files = self.max_files.unwrap_or(MEMBERS);
        settings.label = self.label.as_ref().map(|label| label.as_bytes().to_vec()).unwrap_or_default();
        settings.uuid = match self.uuid.as_deref() {
            Some("random") => {
                return Err(InvalidValue::new(
                    "uuid",
                    "random",
                    "01234567-89ab-cdef-0123-456789abcdef, or clear; builds are reproducible",
                ));
            }
            // `extended` below takes the volume ID.
            Some(text) if self.has_volume_id() && is_volume_id(text) => None,
            Some(text) => {
                let parsed = uuid(text).ok().flatten();
                // A volume ID has 32 bits; the rest of a UUID would be lost.
                let is_stored = |uuid: &[u8; 16]| !self.has_volume_id() || *uuid == [0; 16];
                let example = match self.has_volume_id() {
                    true => "1234-ABCD, or clear",
                    false => "01234567-89ab-cdef-0123-456789abcdef, or clear",
                };
                Some(parsed.filter(is_stored).ok_or_else(|| InvalidValue::new("uuid", text, example))?)
            }
            None => None,
        };
        settings.block_size = match &self.block_size {
            Some(text) => {
                let bytes = size_in(text, 1).and_then(|bytes| u32::try_from(bytes).ok());
                Some(bytes.ok_or_else(|| InvalidValue::new("block-size", text, "4096"))?)
            }
            None => None,
        };
        settings.features.clone_from(&self.features);
        let letters = [
            ("inodes", &self.inodes),
            ("inode_size", &self.inode_size),
            ("reserved_percent", &self.reserved_percent),
        ];
        let given = letters
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value_for_driver(name, value.clone()?))));
        settings.settings.extend(given);
        settings.settings.extend(split(&self.extended));
        if let Some(id) = self.uuid.as_deref().filter(|text| self.has_volume_id() && is_volume_id(text)) {
            settings.settings.push(("volume_id".into(), id.into()));
        }
        Ok(settings)
    }

    /// Returns whether volumes of the type have a volume ID instead of a UUID.
    fn has_volume_id(&self) -> bool {
        matches!(&*self.fs_type, "vfat" | "fat" | "msdos" | "exfat")
    }
}

impl GivenOptions for VolumeArgs {
    fn option_of(&self, setting: &str) -> Option<&'static str> {
        let (option, is_given) = match setting {
            "block size" => ("-b", self.block_size.is_some()),
            "inode_size" => ("-I", self.inode_size.is_some()),
            "inodes" => ("-N", self.inodes.is_some()),
            "label" => ("-L", self.label.is_some()),
            "reserved_percent" => ("-m", self.reserved_percent.is_some()),
            "volume_id" => ("-U", self.uuid.is_some()),
            _ => return None,
        };
        is_given.then_some(option)
    }

    fn host_settings(&self) -> &'static [&'static str] {
        &[]
    }
}

fn percent(text: &str) -> Option<u8> {
    text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|&percent| percent <= 95)
}

fn maps(option: &'static str, texts: &[String]) -> Result<Vec<IdMap>, InvalidValue> {
    let parse = |text: &String| {
        let parts: Option<Vec<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
        let (from, to, count) = match parts.as_deref() {
            Some(&[from, to]) => (from, to, 1),
            Some(&[from, to, count]) => (from, to, count),
            _ => return None,
        };
        // chown(2) takes the last number for "no change".
        let fits = |first: u32| first.checked_add(count).is_some();
        (fits(from) && fits(to)).then_some(IdMap { from, to, count })
    };
    texts
        .iter()
        .map(|text| parse(text).ok_or_else(|| InvalidValue::new(option, text, "1000:0 or 0:100000:65536")))
        .collect()
}

/// Returns the source that `--from` names: by its prefix, or by its type and contents.
fn source(text: &OsStr, folder: &Path) -> Result<BuildSource, Report> {
    let bytes = text.as_bytes();
    let path = |rest: &[u8]| folder.join(OsStr::from_bytes(rest));
    let input = |rest: &[u8]| if rest == b"-" { Input::Standard } else { Input::File(path(rest)) };
    if let Some(at) = bytes.iter().position(|&byte| byte == b':') {
        let rest = &bytes[at + 1..];
        match &bytes[..at] {
            b"dir" => return Ok(BuildSource::Directory(path(rest))),
            b"tar" => return Ok(BuildSource::Archive(input(rest))),
            b"layer" => return Ok(BuildSource::Layer(input(rest))),
            b"oci" => return Ok(BuildSource::OciLayout(path(rest))),
            b"mtree" => return Ok(BuildSource::Mtree(path(rest))),
            b"dump" => return Ok(BuildSource::Dump(path(rest))),
            _ => {}
        }
    }
    if bytes == b"-" {
        return Ok(BuildSource::Archive(Input::Standard));
    }
    let path = path(bytes);
    let meta = std::fs::metadata(&path).map_err(|error| {
        let report = Report::on("cannot open", bytes, &error);
        match bytes.iter().position(|&byte| byte == b':') {
            Some(at) if bytes[..at].iter().all(u8::is_ascii_lowercase) && at > 0 => {
                let prefix = subject(&bytes[..=at]);
                let known = "dir:, tar:, layer:, oci:, mtree: or dump:";
                Report::on("cannot open", bytes, format!("unknown prefix {prefix}"))
                    .help(format!("use {known}, or write './' before a path that contains ':'"))
            }
            _ => report,
        }
    })?;
    if meta.is_dir() {
        let is_layout = path.join("oci-layout").is_file() && path.join("index.json").is_file();
        return Ok(if is_layout { BuildSource::OciLayout(path) } else { BuildSource::Directory(path) });
    }
    // Bytes that are read from a pipe to recognise its contents would be lost.
    let is_manifest = meta.is_file() && (is_mtree(&path) || is_packed_mtree(&path));
    Ok(if is_manifest { BuildSource::Mtree(path) } else { BuildSource::Archive(Input::File(path)) })
}

fn is_mtree(path: &Path) -> bool {
    let mut start = [0; 6];
    let read = open_input(path).is_ok_and(|mut file| file.read_exact(&mut start).is_ok());
    read && &start == b"#mtree"
}

/// Returns whether the name of a file is that of a packed manifest, such as `root.mtree.gz`. Recognising the
/// contents would require decoding.
fn is_packed_mtree(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem.as_bytes().ends_with(b".mtree"))
}

fn add(text: &OsStr, folder: &Path) -> Result<BuildSource, Report> {
    let bytes = text.as_bytes();
    // The path in the image begins with a slash, so that names may contain colons.
    let at = bytes.windows(2).rposition(|pair| pair == b":/");
    let bad = || InvalidValue::new("add", &text.to_string_lossy(), "FILE:/PATH/IN/IMAGE").report();
    let at = at.filter(|&at| at > 0).ok_or_else(bad)?;
    let from = folder.join(OsStr::from_bytes(&bytes[..at]));
    Ok(BuildSource::Add { from, to: bytes[at + 1..].to_vec() })
}
