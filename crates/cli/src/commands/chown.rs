//! `obento chown` and `obento chgrp`: change the owners of files. The image defines the IDs of names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use obento::Node;
use obento::base::{Attr, FileKind};
use obento::driver::{SetAttr, StoredProperties};
use obento::vfs::{Caller, Symlinks};
use obento::walk::Walk;

use crate::change::owner::{Ownership, words};
use crate::change::scope::Scope;
use crate::change::{Done, Verbose, each_below, each_file_by, immutable};
use crate::context::Context;
use crate::help::page::Page;
use crate::open::{Found, open};
use crate::output::Outcome;
use crate::report::{Report, subject};

/// The page of `chown`.
pub const PAGE: Page = Page::new(&[(
    "obento chown -R www-data:www-data disk.img:/srv",
    "Set owner and group to the IDs that these names have in the image",
)])
.see_also(&["chown(1)"]);

/// The page of `chgrp`.
pub const GROUP_PAGE: Page =
    Page::new(&[("obento chgrp staff disk.img:/srv", "Set the group of a file")]).see_also(&["chgrp(1)"]);

/// Change the owner and group of files
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "obento chown [OPTIONS] <OWNER> <IMAGE:PATH>...\n       obento chown [OPTIONS] --reference <IMAGE:FILE> <IMAGE:PATH>..."
)]
pub struct Args {
    #[command(flatten)]
    how: ChownOptions,
    /// OWNER, OWNER:GROUP or :GROUP, and then files in images; only files if --reference is given
    #[arg(required = true, value_name = "OWNER|IMAGE:PATH")]
    operands: Vec<OsString>,
}

/// Change the group of files
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "obento chgrp [OPTIONS] <GROUP> <IMAGE:PATH>...\n       obento chgrp [OPTIONS] --reference <IMAGE:FILE> <IMAGE:PATH>..."
)]
pub struct GroupArgs {
    #[command(flatten)]
    how: ChownOptions,
    /// A group, and then files in images; only files if --reference is given
    #[arg(required = true, value_name = "GROUP|IMAGE:PATH")]
    operands: Vec<OsString>,
}

#[derive(clap::Args, Debug)]
struct ChownOptions {
    #[command(flatten)]
    scope: Scope,
    /// Change symbolic links instead of their targets
    #[arg(short = 'h', long, overrides_with = "dereference")]
    no_dereference: bool,
    /// Change the targets of symbolic links (default)
    #[arg(long, overrides_with = "no_dereference")]
    dereference: bool,
    /// With -R: follow symbolic links that are operands
    #[arg(short = 'H', overrides_with_all = ["logical", "physical"])]
    command_line: bool,
    /// With -R: follow all symbolic links
    #[arg(short = 'L', overrides_with_all = ["command_line", "physical"])]
    logical: bool,
    /// With -R: do not follow symbolic links (default)
    #[arg(short = 'P', overrides_with_all = ["command_line", "logical"])]
    physical: bool,
    /// Change only files with this owner and group
    #[arg(long, value_name = "OWNER:GROUP")]
    from: Option<OsString>,
    /// Use the owner and group of FILE
    #[arg(long, value_name = "IMAGE:FILE")]
    reference: Option<OsString>,
}

/// Whether the first operand is an owner or a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstOperand {
    OfOwner,
    OfGroup,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    change_all(&args.how, FirstOperand::OfOwner, &args.operands, context)
}

pub fn run_group(args: &GroupArgs, context: &Context) -> Outcome {
    change_all(&args.how, FirstOperand::OfGroup, &args.operands, context)
}

fn change_all(how: &ChownOptions, speaks: FirstOperand, operands: &[OsString], context: &Context) -> Outcome {
    let (said, paths) = match (&how.reference, operands.split_first()) {
        (None, Some((said, paths))) if !paths.is_empty() => (said.as_os_str(), paths),
        (None, _) => {
            let (what, which, usage) = match speaks {
                FirstOperand::OfOwner => ("owners", "owner", "chown USER:GROUP"),
                FirstOperand::OfGroup => ("groups", "group", "chgrp GROUP"),
            };
            let what = format!("cannot change {what}");
            let report = Report::new(what, format!("missing operand after the {which}"));
            return Err(report.help(format!("usage: obento {usage} disk.img:/FILE")).into());
        }
        (Some(_), _) => (OsStr::new(""), operands),
    };
    let verbose = Verbose::new(how.scope.verbose || how.scope.changes);
    let mut changer = Changer { how, speaks, said, context, verbose };
    let follows_top = match how.scope.recursive {
        true => how.command_line || how.logical,
        false => !how.no_dereference,
    };
    let symlinks = if follows_top { Symlinks::Follow } else { Symlinks::Keep };
    each_file_by(paths, how.reference.as_ref(), symlinks, "cannot access", context, |found| {
        changer.operand(found)
    });
    changer.verbose.finish()
}

struct Changer<'a> {
    how: &'a ChownOptions,
    speaks: FirstOperand,
    said: &'a OsStr,
    context: &'a Context,
    verbose: Verbose,
}

/// The changes of one volume.
#[derive(Clone, Copy)]
struct OwnerChange {
    to: Ownership,
    from: Ownership,
}

impl Changer<'_> {
    fn operand(&mut self, found: &Found) -> Done {
        let wanted = self.wanted(found)?;
        if !self.how.scope.recursive {
            return self.change(found, &found.node, None, wanted, &found.shown());
        }
        self.how.scope.expect_no_root(found)?;
        let context = self.context;
        let symlinks = if self.how.logical { Symlinks::Follow } else { Symlinks::Keep };
        let walk = Walk::new(found.node.clone()).symlinks(symlinks);
        each_below(walk, found, context, |entry, shown| {
            // As chown -R: with -H the target of a link is changed, but not traversed.
            let leads =
                self.how.command_line && !self.how.no_dereference && entry.attr.kind == FileKind::Symlink;
            match leads {
                true => self.behind_link(found, &entry.node, wanted, shown),
                false => self.change(found, &entry.node, Some(entry.attr), wanted, shown),
            }
        });
        Ok(())
    }

    /// Changes the target of a link within a tree, without traversing it.
    fn behind_link(&mut self, found: &Found, link: &Node, wanted: OwnerChange, shown: &[u8]) -> Done {
        let target = found.location.volume.resolve(&place_of(found, shown), Symlinks::Follow);
        match target {
            Ok(node) if node != *link => self.change(found, &node, None, wanted, shown),
            Ok(_) => Ok(()),
            Err(error) => Err(Report::on("cannot dereference", shown, error)),
        }
    }

    fn wanted(&self, found: &Found) -> Result<OwnerChange, Report> {
        let owners = found.location.volume.owners();
        let to = match (&self.how.reference, self.speaks) {
            (Some(file), speaks) => referred(file, speaks, self.context)?,
            (None, FirstOperand::OfOwner) => Ownership::parse(self.said.as_bytes(), owners)?,
            (None, FirstOperand::OfGroup) => Ownership::parse_group(self.said.as_bytes(), owners)?,
        };
        let from = self.how.from.as_ref();
        let from = from.map_or(Ok(Ownership::default()), |from| Ownership::parse(from.as_bytes(), owners))?;
        Ok(OwnerChange { to, from })
    }

    fn change(
        &mut self,
        found: &Found,
        node: &Node,
        attr: Option<Attr>,
        wanted: OwnerChange,
        shown: &[u8],
    ) -> Done {
        let OwnerChange { to, from } = wanted;
        let changed = attr.map_or_else(|| node.attr(), Ok).and_then(|before| {
            if !from.covers(before.uid, before.gid) {
                return Ok((before, before));
            }
            let change = SetAttr { uid: to.uid, gid: to.gid, ..SetAttr::default() };
            node.vfs().set_attr(&Caller::Owner, node, &change).map(|after| (before, after))
        });
        let (before, after) = match changed {
            Err(_) if self.how.scope.silent => {
                self.context.raise(1);
                return Ok(());
            }
            changed => changed.map_err(|error| {
                let what = if to.uid.is_some() {
                    "cannot change the owner of"
                } else {
                    "cannot change the group of"
                };
                let report = immutable(Report::on(what, shown, error), error, shown);
                let advice =
                    "the file system stores no owners; use --mount-options uid=,gid= to set the shown owner";
                found.location.without(StoredProperties::OWNERS, report, advice)
            })?,
        };
        let owners = found.location.volume.owners();
        // Report only what was requested.
        let reported = |attr: &Attr| {
            words(Ownership { uid: to.uid.map(|_| attr.uid), gid: to.gid.map(|_| attr.gid) }, owners)
        };
        let what = if to.uid.is_some() { "ownership" } else { "group" };
        if (before.uid, before.gid) != (after.uid, after.gid) {
            self.verbose.say(|| {
                format!(
                    "changed {what} of {} from {} to {}",
                    subject(shown),
                    reported(&before),
                    reported(&after)
                )
            });
        } else if self.how.scope.verbose {
            self.verbose.say(|| format!("{what} of {} retained as {}", subject(shown), reported(&after)));
        }
        Ok(())
    }
}

/// Returns the place that `shown` names in the volume of `found`.
fn place_of(found: &Found, shown: &[u8]) -> obento::address::FileSelector {
    obento::address::FileSelector::Path(shown.strip_prefix(&*found.location.prefix).unwrap_or(shown).to_vec())
}

/// Returns the owner and group of the file that `--reference` names, as numbers.
fn referred(file: &OsStr, speaks: FirstOperand, context: &Context) -> Result<Ownership, Report> {
    let location = open(file, context)?;
    let attr = location.volume.resolve(&location.place, Symlinks::Follow).and_then(|node| node.attr());
    let attr = attr.map_err(|error| location.not_found("cannot access", error))?;
    Ok(Ownership { uid: (speaks == FirstOperand::OfOwner).then_some(attr.uid), gid: Some(attr.gid) })
}
