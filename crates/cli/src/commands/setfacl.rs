//! `obento setfacl`: changes access control lists as setfacl(1) does.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use obento::base::{Attr, FileKind, Mode};
use obento::driver::{SetAttr, XattrMode};
use obento::vfs::acl::{self, Acl, Tag};
use obento::vfs::{AccessRequest, Caller, Symlinks};
use obento::volume::Owners;
use obento::walk::Walk;
use obento::{Error, Node};

use super::getfacl::read;
use crate::cause::Cause;
use crate::change::acl::{Draft, EntryForm, EntrySpec, MaskIs, parse};
use crate::change::owner::{parse_group, parse_user};
use crate::change::{Done, each_below, each_file, each_place, immutable};
use crate::context::Context;
use crate::help::page::Page;
use crate::open::{Found, Location};
use crate::output::Outcome;
use crate::report::{Report, subject};

/// The page of `setfacl`.
pub const PAGE: Page =
    Page::new(&[("obento setfacl -m u:ann:rw disk.img:/srv/notes", "Grant a user access to a file")])
        .see_also(&["setfacl(1)", "acl(5)"]);

/// Change access control lists
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files and directories in images
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Set these entries: u:USER:rwx, g:GROUP:rx, m::rx, o::r; the prefix d: selects the default ACL
    #[arg(short, long, value_name = "ENTRIES")]
    modify: Vec<String>,
    /// Remove these entries
    #[arg(short = 'x', long, value_name = "ENTRIES")]
    remove: Vec<String>,
    /// Replace the ACL by these entries
    #[arg(long, value_name = "ENTRIES", conflicts_with_all = ["modify", "remove"])]
    set: Vec<String>,
    /// Remove all entries except those of the mode
    #[arg(short = 'b', long)]
    remove_all: bool,
    /// Remove the default ACL
    #[arg(short = 'k', long)]
    remove_default: bool,
    /// Do not recalculate the mask
    #[arg(short = 'n', long, overrides_with = "mask")]
    no_mask: bool,
    /// Recalculate the mask even if an entry sets it
    #[arg(long, overrides_with = "no_mask")]
    mask: bool,
    /// Apply all entries to the default ACL
    #[arg(short, long)]
    default: bool,
    /// Also change the files below directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// With -R: follow all symbolic links
    #[arg(short = 'L', long, overrides_with = "physical")]
    logical: bool,
    /// Do not follow symbolic links
    #[arg(short = 'P', long, overrides_with = "logical")]
    physical: bool,
    /// Restore the ACLs, owners and modes from FILE, which getfacl -R wrote; - is standard input. The operand is the
    /// directory to which the paths are relative
    #[arg(long, value_name = "FILE", conflicts_with_all = ["modify", "remove", "set", "remove_all", "remove_default"])]
    restore: Option<OsString>,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    if let Some(file) = &args.restore {
        return restore(args, file, context);
    }
    let does_nothing = args.modify.is_empty() && args.remove.is_empty() && args.set.is_empty();
    if does_nothing && !args.remove_all && !args.remove_default {
        let report = Report::new("cannot change ACLs", "no change given");
        return Err(report.help("usage: obento setfacl -m u:USER:rw disk.img:/FILE").into());
    }
    let symlinks = if args.physical { Symlinks::Keep } else { Symlinks::Follow };
    each_file(&args.paths, symlinks, "cannot access", context, |found| {
        // An error of usage, which the names of the volume decide.
        let wish = match RequestedChanges::new(args, found.location.volume.owners()) {
            Ok(wish) => wish,
            Err(report) => {
                context.fail(&report);
                return Ok(());
            }
        };
        if !args.recursive {
            let attr = found.node.attr();
            let attr = attr.map_err(|error| Report::on("cannot access", found.shown(), error))?;
            return wish.change(&found.node, &attr, &found.shown(), args);
        }
        let symlinks = if args.logical { Symlinks::Follow } else { Symlinks::Keep };
        each_below(Walk::new(found.node.clone()).symlinks(symlinks), found, context, |entry, shown| {
            match entry.attr.kind {
                FileKind::Symlink => Ok(()),
                _ => wish.change(&entry.node, &entry.attr, shown, args),
            }
        });
        Ok(())
    });
    Ok(())
}

/// The changes that the options request, in numbers.
struct RequestedChanges {
    set: Vec<EntrySpec>,
    modify: Vec<EntrySpec>,
    remove: Vec<EntrySpec>,
}

impl RequestedChanges {
    fn new(args: &Args, owners: &Owners) -> Result<Self, Report> {
        let specs = |texts: &[String], says| {
            let mut specs = Vec::new();
            for text in texts {
                specs.extend(parse(text, says, owners)?);
            }
            for spec in &mut specs {
                spec.is_default |= args.default;
            }
            Ok::<_, Report>(specs)
        };
        Ok(Self {
            set: specs(&args.set, EntryForm::Permissions)?,
            modify: specs(&args.modify, EntryForm::Permissions)?,
            remove: specs(&args.remove, EntryForm::WhomAlone)?,
        })
    }

    fn speaks_of(&self, default: bool) -> bool {
        [&self.set, &self.modify, &self.remove].into_iter().flatten().any(|spec| spec.is_default == default)
    }

    fn change(&self, node: &Node, attr: &Attr, shown: &[u8], args: &Args) -> Done {
        let failed = |cause: &dyn Cause| Report::on("cannot set ACL on", shown, cause);
        if attr.kind == FileKind::Symlink {
            return Err(failed(&"a symbolic link has no ACL"));
        }
        let (access, default) = read(node, attr).map_err(|error| failed(&error))?;
        if self.speaks_of(true) && !attr.is_dir() {
            // As setfacl -R: a file that is not a directory has no default ACL, which is not an error.
            if !args.recursive {
                return Err(failed(&"only directories have a default ACL"));
            }
        }
        let executes =
            attr.is_dir() || access.entries().iter().any(|entry| entry.perm.contains(AccessRequest::EXEC));
        if self.speaks_of(false) || args.remove_all {
            let mut draft = Draft::of(&access);
            if args.remove_all {
                draft.strip();
            }
            if !args.set.is_empty() {
                draft = Draft::empty();
            }
            self.apply(&mut draft, false, executes, args);
            let list = draft.finish().map_err(|report| failed(&report))?;
            store_access(node, &list, attr.mode).map_err(|error| match error {
                Error::NotSupported => failed(&"the file system does not support ACLs"),
                error => immutable(failed(&error), error, shown),
            })?;
        }
        if attr.is_dir() && (args.remove_all || args.remove_default) && default.is_some() {
            drop_list(node, acl::DEFAULT).map_err(|error| failed(&error))?;
        }
        if attr.is_dir() && self.speaks_of(true) {
            let kept = default.filter(|_| args.set.is_empty() && !args.remove_all && !args.remove_default);
            // Entries that a default ACL lacks are taken from the ACL of the directory.
            let mut draft = kept.as_ref().map_or_else(|| Draft::of(&access).base(), Draft::of);
            self.apply(&mut draft, true, executes, args);
            let list = draft.finish().map_err(|report| failed(&report))?;
            let stored =
                node.vfs().set_xattr(&Caller::Owner, node, acl::DEFAULT, &list.encode(), XattrMode::Set);
            stored.map_err(|error| immutable(failed(&error), error, shown))?;
        }
        Ok(())
    }

    fn apply(&self, draft: &mut Draft, default: bool, executes: bool, args: &Args) {
        let of_list = |specs: &[EntrySpec]| {
            specs.iter().filter(|spec| spec.is_default == default).copied().collect::<Vec<_>>()
        };
        let (set, modify, remove) = (of_list(&self.set), of_list(&self.modify), of_list(&self.remove));
        for spec in set.iter().chain(&modify) {
            draft.set(spec.tag, spec.perm(executes));
        }
        remove.iter().for_each(|spec| draft.remove(spec.tag));
        let sets_mask = set.iter().chain(&modify).any(|spec| spec.tag == Tag::Mask);
        let takes_mask = remove.iter().any(|spec| spec.tag == Tag::Mask);
        let changes = !(set.is_empty() && modify.is_empty() && remove.is_empty());
        let is_kept = args.no_mask || sets_mask && !args.mask;
        if changes && !takes_mask {
            draft.count_mask(if is_kept { MaskIs::Unchanged } else { MaskIs::Counted });
        }
    }
}

/// Stores the ACL of a file; an ACL that equals the mode is stored as the mode.
fn store_access(node: &Node, list: &Acl, mode: Mode) -> Result<(), Error> {
    let vfs = node.vfs();
    if !list.is_mode_alone() {
        return vfs.set_xattr(&Caller::Owner, node, acl::ACCESS, &list.encode(), XattrMode::Set);
    }
    drop_list(node, acl::ACCESS)?;
    let mode = Mode::new(mode.bits() & 0o7000 | list.mode().bits());
    vfs.set_attr(&Caller::Owner, node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).map(drop)
}

fn drop_list(node: &Node, name: &[u8]) -> Result<(), Error> {
    match node.vfs().remove_xattr(&Caller::Owner, node, name) {
        Err(error) if error == Error::NoData || error == Error::NotSupported => Ok(()),
        removed => removed,
    }
}

/// `--restore`.
fn restore(args: &Args, file: &OsString, context: &Context) -> Outcome {
    let text = super::setfattr::read_dump(file)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    each_place(&args.paths, context, |base| {
        for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
            if let Err(report) = restore_one(base, block, file) {
                context.warn(&report);
            }
        }
        Ok(())
    });
    Ok(())
}

/// Restores one block of getfacl's output: name, owner, group, flags, and the ACLs.
fn restore_one(base: &Location, block: &str, file: &OsString) -> Done {
    let comment = |key: &str| {
        block.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "))
    };
    let name = comment("file").ok_or_else(|| {
        let line = subject(block.lines().next().unwrap_or_default());
        let cause = format!("the block that begins with {line} has no '# file:' line");
        let report = Report::on("cannot restore ACLs from", file.as_bytes(), cause);
        report.help("name a file that 'obento getfacl -R' wrote")
    })?;
    let name = super::setfattr::unescape(name.as_bytes());
    let Some(place) = super::setfattr::place_below(base, &name) else { return Ok(()) };
    let found = place.clone().find(Symlinks::Keep, "cannot access")?;
    let Some(Found { node, .. }) = found.first() else { return Ok(()) };
    let failed = |cause: &dyn Cause| Report::on("cannot restore the ACL of", place.shown(), cause);
    let owners = place.volume.owners();
    let uid = comment("owner").map(|name| parse_user(name.as_bytes(), owners)).transpose()?;
    let gid = comment("group").map(|name| parse_group(name.as_bytes(), owners)).transpose()?;
    let bits = comment("flags").unwrap_or("---").bytes().zip([0o4000, 0o2000, 0o1000]);
    let special = bits.filter(|(letter, _)| *letter != b'-').fold(0, |bits, (_, bit)| bits | bit);
    let specs = parse(block, EntryForm::Permissions, owners)
        .map_err(|report| Report::on("cannot restore ACLs from", file.as_bytes(), report))?;
    let list = |default: bool| {
        let mut of_list = specs.iter().filter(|spec| spec.is_default == default).peekable();
        of_list.peek()?;
        let mut draft = Draft::empty();
        of_list.for_each(|spec| draft.set(spec.tag, spec.perm(false)));
        Some(draft.finish())
    };
    let store = || -> Result<(), Error> {
        let vfs = node.vfs();
        let owner = SetAttr { uid, gid, ..SetAttr::default() };
        vfs.set_attr(&Caller::Owner, node, &owner).map(drop)
    };
    store().map_err(|error| failed(&error))?;
    if let Some(access) = list(false) {
        let access = access.map_err(|report| failed(&report))?;
        store_access(node, &access, Mode::new(special)).map_err(|error| failed(&error))?;
        let mode = Some(Mode::new(special | access.mode().bits()));
        let change = SetAttr { mode, ..SetAttr::default() };
        node.vfs().set_attr(&Caller::Owner, node, &change).map_err(|error| failed(&error))?;
    }
    let stored = match list(true) {
        None => drop_list(node, acl::DEFAULT),
        Some(default) => {
            let bytes = default.map_err(|report| failed(&report))?.encode();
            node.vfs().set_xattr(&Caller::Owner, node, acl::DEFAULT, &bytes, XattrMode::Set)
        }
    };
    let is_dir = node.kind() == Ok(FileKind::Directory);
    if is_dir { stored.map_err(|error| failed(&error)) } else { Ok(()) }
}
