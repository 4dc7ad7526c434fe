//! The options of `obento cp`, which are those of GNU cp.

use std::ffi::OsString;

use clap::{ArgAction, ValueEnum};
use obento::copy::{CopyOptions, Existing, HardLinks, Keep, NewMode, TargetIs, TreeOptions, Trust};
use obento::vfs::Symlinks;

use crate::change::backup::BackupArgs;
use crate::parse::size::positive_size;
use crate::report::Report;

/// The default of `--max-files` for an image that is not trusted. A server can list a directory without an end.
const UNTRUSTED_FILES: u64 = 10_000_000;

/// Copy files out of images and into them
///
/// The command writes nothing outside the target, even if an image is hostile. A file in an image is replaced
/// atomically: a crash leaves the old or the new file. The new file first has a temporary name that starts
/// with .obento-unfinished-. If the command is killed, the next copy to the same directory removes this file.
/// A file with several names in an image is overwritten in place, so that all its names get the new contents.
/// With -d or -a, only the named file is replaced, and its other names still refer to the old contents.
///
/// If two sources have the same name, the first one is copied, and the second one is an error. README and
/// readme are the same name on FAT. At the end, the command prints the number of attributes that it could
/// not preserve, such as owners on the host if the user is not root. The exit status is 1 if a file cannot be
/// read or written, or if an access control list is lost.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "obento cp [OPTIONS] <SOURCE>... <TARGET>\n       obento cp [OPTIONS] -t <DIR> <SOURCE>..."
)]
pub struct Args {
    /// Preserve everything: -dR --preserve=all
    #[arg(short, long)]
    archive: bool,
    /// Copy directories recursively, and create devices, FIFOs and sockets instead of copying their contents
    #[arg(short = 'R', short_alias = 'r', long)]
    recursive: bool,
    /// Preserve links: --no-dereference --preserve=links
    #[arg(short = 'd')]
    links: bool,
    /// Follow symbolic links; a link in an image is resolved inside the image
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "named_links"])]
    dereference: bool,
    /// Copy symbolic links as links
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "named_links"])]
    no_dereference: bool,
    /// Follow symbolic links that are sources
    #[arg(short = 'H', overrides_with_all = ["dereference", "no_dereference"])]
    named_links: bool,
    /// Preserve mode, owner and times
    #[arg(short = 'p')]
    attributes: bool,
    /// Preserve mode, ownership, timestamps, links, xattr or all; without a list the first three
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_values = ["mode", "ownership", "timestamps"],
        action = ArgAction::Append
    )]
    preserve: Vec<Attribute>,
    /// Do not preserve these attributes
    #[arg(long, value_name = "LIST", value_delimiter = ',', action = ArgAction::Append)]
    no_preserve: Vec<Attribute>,
    /// Keep existing files
    #[arg(short = 'n', long, overrides_with_all = ["force", "update"], conflicts_with_all = ["backup", "existing"])]
    no_clobber: bool,
    /// Replace existing files (the default), and also a disk image that is the target: disk.img without ':/'
    #[arg(short, long, overrides_with_all = ["no_clobber", "update"])]
    force: bool,
    /// Replace only files that are older than the source
    #[arg(short, long, overrides_with_all = ["no_clobber", "force"])]
    update: bool,
    #[command(flatten)]
    backup: BackupArgs,
    /// Print each copied file
    #[arg(short, long)]
    pub verbose: bool,
    /// Create holes: as in the source (auto), for all zeros (always), or not at all (never)
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    sparse: Sparse,
    /// Accepted for compatibility: the data is always copied, and WHEN 'always' is an error
    #[arg(long, value_name = "WHEN", default_value = "auto", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    reflink: Reflink,
    /// Do not enter host directories on which another file system is mounted
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Treat the target as a name, even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Copy all sources into DIR
    #[arg(short = 't', long, value_name = "DIR")]
    pub target_directory: Option<OsString>,
    /// Stop after SIZE bytes of data and extended attributes, such as 500M or 2G (default with --untrusted: that of
    /// --max-unpacked)
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    max_bytes: Option<u64>,
    /// Stop after N files and directories, including those that exist on the host (default with --untrusted:
    /// 10000000)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_files: Option<u64>,
    /// Do not trust the image: copy no set-user-ID bits, capabilities or device nodes
    #[arg(long)]
    untrusted: bool,
    /// The sources and the target: host paths, addresses, or - for standard input or output
    #[arg(value_name = "PATH", required = true)]
    pub operands: Vec<OsString>,
}

/// The values of `--preserve`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Attribute {
    Mode,
    Ownership,
    Timestamps,
    Links,
    /// Extended attributes, including SELinux contexts.
    #[value(alias = "context")]
    Xattr,
    All,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Sparse {
    Auto,
    Always,
    Never,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Reflink {
    Auto,
    Always,
    Never,
}

impl Attribute {
    /// Returns the metadata that it means, and whether it includes hard links.
    fn meaning(self) -> (Keep, bool) {
        match self {
            Self::Mode => (Keep::MODE, false),
            Self::Ownership => (Keep::OWNER, false),
            Self::Timestamps => (Keep::TIMES, false),
            Self::Links => (Keep::empty(), true),
            Self::Xattr => (Keep::XATTRS, false),
            Self::All => (Keep::all(), true),
        }
    }
}

impl Args {
    /// Returns whether directories are copied.
    pub fn is_recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// Returns whether a disk image of the host may be lost, because its name is the target.
    pub fn may_lose_image(&self) -> bool {
        self.force
    }

    /// Returns whether the image is not trusted.
    pub fn is_untrusted(&self) -> bool {
        self.untrusted
    }

    /// Returns whether blocks must be shared.
    pub fn insists_on_sharing(&self) -> bool {
        self.reflink == Reflink::Always
    }

    /// Returns the treatment of symbolic links below the sources: followed, except in recursive copies or with -P.
    pub fn symlinks(&self) -> Symlinks {
        let keeps = self.links || self.is_recursive() || self.named_links;
        let keep = self.no_dereference || (!self.dereference && keeps);
        if keep { Symlinks::Keep } else { Symlinks::Follow }
    }

    /// Returns the treatment of symbolic links that are sources.
    pub fn named_symlinks(&self) -> Symlinks {
        if self.named_links { Symlinks::Follow } else { self.symlinks() }
    }

    /// Returns all options in the form of the library. Fails if the type of backup is unknown.
    pub fn options(&self) -> Result<CopyOptions, Report> {
        let (keep, links) = self.kept();
        Ok(CopyOptions {
            recursive: self.is_recursive(),
            symlinks: self.symlinks(),
            named_symlinks: self.named_symlinks(),
            one_file_system: self.one_file_system,
            hard_links: if links { HardLinks::Keep } else { HardLinks::Separate },
            holes: match self.sparse {
                Sparse::Auto => obento::copy::Holes::Keep,
                Sparse::Always => obento::copy::Holes::Make,
                Sparse::Never => obento::copy::Holes::Fill,
            },
            target: match (&self.target_directory, self.no_target_directory) {
                (Some(_), _) => TargetIs::Directory,
                (None, true) => TargetIs::Copy,
                (None, false) => TargetIs::Either,
            },
            tree: TreeOptions {
                existing: match (self.no_clobber, self.update) {
                    (true, _) => Existing::Keep,
                    (false, true) => Existing::Update,
                    (false, false) => Existing::Replace,
                },
                trust: if self.untrusted { Trust::Untrusted } else { Trust::Full },
                keep,
                new_mode: if self.refuses_mode() { NewMode::Plain } else { NewMode::Source },
                max_bytes: self.max_bytes.unwrap_or(u64::MAX),
                max_files: self.max_files.unwrap_or(if self.untrusted { UNTRUSTED_FILES } else { u64::MAX }),
                backup: self.backup.backup()?,
            },
            spared: Vec::new(),
        })
    }

    /// Returns whether modes of the sources are not used for new files either.
    fn refuses_mode(&self) -> bool {
        self.no_preserve.iter().any(|what| what.meaning().0.contains(Keep::MODE))
    }

    /// Returns the metadata that is preserved, and whether hard links are.
    fn kept(&self) -> (Keep, bool) {
        let basic = [Attribute::Mode, Attribute::Ownership, Attribute::Timestamps];
        let archive = self.archive.then_some(Attribute::All);
        let attributes = self.attributes.then_some(basic).into_iter().flatten();
        let links = self.links.then_some(Attribute::Links);
        let asked = archive.into_iter().chain(attributes).chain(links).chain(self.preserve.iter().copied());
        let (mut keep, mut links) = (Keep::empty(), false);
        for (what, also_links) in asked.map(Attribute::meaning) {
            keep |= what;
            links |= also_links;
        }
        for (what, also_links) in self.no_preserve.iter().copied().map(Attribute::meaning) {
            keep -= what;
            links &= !also_links;
        }
        (keep, links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cp {
        #[command(flatten)]
        args: Args,
    }

    fn options(text: &str) -> CopyOptions {
        Cp::parse_from(format!("cp {text} a b").split_whitespace()).args.options().unwrap()
    }

    #[test]
    fn options_have_the_meaning_of_gnu_cp() {
        assert_eq!(options("-a"), CopyOptions::archive());
        assert_eq!(options("-dR --preserve=all"), CopyOptions::archive());
        assert_eq!(options(""), CopyOptions::plain());
        let basic = Keep::MODE | Keep::OWNER | Keep::TIMES;
        assert_eq!(options("-p").tree.keep, basic);
        assert_eq!(options("--preserve").tree.keep, basic);
        assert_eq!(options("-a --no-preserve=ownership,links").tree.keep, Keep::all() - Keep::OWNER);
        assert_eq!(options("-a --no-preserve=ownership,links").hard_links, HardLinks::Separate);
        assert_eq!(options("-r").symlinks, Symlinks::Keep);
        assert_eq!(options("-rL").symlinks, Symlinks::Follow);
        assert_eq!(options("-P").symlinks, Symlinks::Keep);
        let named = options("-aH");
        assert_eq!((named.symlinks, named.named_symlinks), (Symlinks::Keep, Symlinks::Follow));
        assert_eq!(options("-aHP").named_symlinks, Symlinks::Keep);
    }

    #[test]
    fn the_last_of_contradicting_options_counts() {
        assert_eq!(options("-n -f").tree.existing, Existing::Replace);
        assert_eq!(options("-f -u").tree.existing, Existing::Update);
        assert_eq!(options("-u -n").tree.existing, Existing::Keep);
        assert_eq!(options("-P -L").symlinks, Symlinks::Follow);
    }

    #[test]
    fn a_limit_takes_units() {
        assert_eq!(options("--max-bytes 2G").tree.max_bytes, 2 << 30);
        assert_eq!(options("--max-files 7 --untrusted").tree.max_files, 7);
        assert_eq!(options("--untrusted").tree.max_files, UNTRUSTED_FILES);
        assert_eq!(options("-a").tree.max_files, u64::MAX);
        assert_eq!(options("--untrusted").tree.trust, Trust::Untrusted);
    }
}
