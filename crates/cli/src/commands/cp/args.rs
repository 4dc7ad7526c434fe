//! The options of `obento cp`, which are those of GNU cp, and what they mean together.

use std::ffi::OsString;

use clap::{ArgAction, ValueEnum};
use obento::{CopyOptions, Existing, HardLinks, Keep, NewMode, Symlinks, TargetIs, TreeOptions, Trust};

use crate::change::backup::BackupArgs;
use crate::format::size::parse_size;
use crate::report::Report;

/// Copy files out of images and into them: cp -a disk.img:/etc DIR, cp -a DIR disk.img:/srv
///
/// Whatever an image says, nothing is written outside the target. A file of an image that is replaced is the old one or
/// the new one at any moment; until then the new one is called .obento-unfinished- and a number that is made of where it
/// belongs, and the next copy to there removes what a killed one left. A file of an image with several names is written in
/// place, so that all its names have the new contents, unless links are kept (-d, -a). A file that the command has just
/// created is not overwritten by another source, also where the volume takes two names for one. What cannot be kept (the
/// owner on the host, for who is not root) is counted at the end; what cannot be read or written, and an access control list
/// that is lost, makes the exit status 1.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Keep everything: -dR --preserve=all
    #[arg(short, long)]
    archive: bool,
    /// Copy directories with all that is in them
    #[arg(short = 'R', short_alias = 'r', long)]
    recursive: bool,
    /// Keep links: --no-dereference --preserve=links
    #[arg(short = 'd')]
    links: bool,
    /// Follow symbolic links; those of an image inside it
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "named_links"])]
    dereference: bool,
    /// Copy symbolic links as links
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "named_links"])]
    no_dereference: bool,
    /// Follow symbolic links that are named as sources
    #[arg(short = 'H', overrides_with_all = ["dereference", "no_dereference"])]
    named_links: bool,
    /// Keep mode, owner and times
    #[arg(short = 'p')]
    attributes: bool,
    /// Keep these: mode, ownership, timestamps, links, xattr, all; without a list the first three
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
    /// Do not keep these
    #[arg(long, value_name = "LIST", value_delimiter = ',', action = ArgAction::Append)]
    no_preserve: Vec<Attribute>,
    /// Leave files alone that exist
    #[arg(short = 'n', long, overrides_with_all = ["force", "update"], conflicts_with_all = ["backup", "existing"])]
    no_clobber: bool,
    /// Replace files that exist, which is the default
    #[arg(short, long, overrides_with_all = ["no_clobber", "update"])]
    force: bool,
    /// Replace files that exist only if they are older
    #[arg(short, long, overrides_with_all = ["no_clobber", "force"])]
    update: bool,
    #[command(flatten)]
    backup: BackupArgs,
    /// Name each file as it is copied
    #[arg(short, long)]
    pub verbose: bool,
    /// Holes: as in the image (auto), also where there are zeros (always), or nowhere (never)
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    sparse: Sparse,
    /// Share blocks with the source: if it can be done (auto), or copy (never)
    #[arg(long, value_name = "WHEN", default_value = "auto", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    reflink: Reflink,
    /// Leave directories of the host empty on which another file system is mounted
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// The target is a file or directory of this very name, and not a directory to copy into
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Copy everything into DIR
    #[arg(short = 't', long, value_name = "DIR")]
    pub target_directory: Option<OsString>,
    /// Stop after so many bytes of data, such as 500M or 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_bytes: Option<u64>,
    /// Do not believe the image: no set-user-ID bits, no capabilities, no device nodes
    #[arg(long)]
    untrusted: bool,
    /// What to copy, and where to: host paths, places in images, - for standard input or output
    #[arg(value_name = "SOURCE... TARGET", required = true)]
    pub operands: Vec<OsString>,
}

/// What `--preserve` names.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Attribute {
    Mode,
    Ownership,
    Timestamps,
    Links,
    /// SELinux contexts are extended attributes.
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
    /// As metadata, and whether it also means hard links.
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
    /// Whether directories are copied.
    pub fn is_recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// Whether the image is not believed.
    pub fn is_untrusted(&self) -> bool {
        self.untrusted
    }

    /// Whether blocks must be shared or nothing be copied.
    pub fn insists_on_sharing(&self) -> bool {
        self.reflink == Reflink::Always
    }

    /// What becomes of symbolic links below the sources: cp follows them unless it copies trees or is told otherwise.
    pub fn symlinks(&self) -> Symlinks {
        let keeps = self.links || self.is_recursive() || self.named_links;
        let keep = self.no_dereference || (!self.dereference && keeps);
        if keep { Symlinks::Keep } else { Symlinks::Follow }
    }

    /// What becomes of symbolic links that are sources.
    pub fn named_symlinks(&self) -> Symlinks {
        if self.named_links { Symlinks::Follow } else { self.symlinks() }
    }

    /// All of it as the library has it. Errors: backups that nobody knows.
    pub fn options(&self) -> Result<CopyOptions, Report> {
        let (keep, links) = self.kept();
        Ok(CopyOptions {
            recursive: self.is_recursive(),
            symlinks: self.symlinks(),
            named_symlinks: self.named_symlinks(),
            one_file_system: self.one_file_system,
            hard_links: if links { HardLinks::Keep } else { HardLinks::Separate },
            holes: match self.sparse {
                Sparse::Auto => obento::Holes::Keep,
                Sparse::Always => obento::Holes::Make,
                Sparse::Never => obento::Holes::Fill,
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
                backup: self.backup.backup()?,
            },
            spared: Vec::new(),
        })
    }

    /// Whether modes of the sources are not to be used for new files either.
    fn refuses_mode(&self) -> bool {
        self.no_preserve.iter().any(|what| what.meaning().0.contains(Keep::MODE))
    }

    /// What metadata is kept, and whether hard links are.
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
    fn flags_mean_what_they_mean_to_gnu_cp() {
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
    fn of_contradicting_flags_the_last_counts() {
        assert_eq!(options("-n -f").tree.existing, Existing::Replace);
        assert_eq!(options("-f -u").tree.existing, Existing::Update);
        assert_eq!(options("-u -n").tree.existing, Existing::Keep);
        assert_eq!(options("-P -L").symlinks, Symlinks::Follow);
    }

    #[test]
    fn a_limit_takes_units() {
        assert_eq!(options("--max-bytes 2G").tree.max_bytes, 2 << 30);
        assert_eq!(options("--untrusted").tree.trust, Trust::Untrusted);
    }
}
