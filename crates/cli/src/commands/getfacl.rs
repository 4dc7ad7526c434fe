//! `obento getfacl`: access control lists, as getfacl(1) prints them; `setfacl --restore` reads it.
//!
//! A file is named by its path in the image without the leading slash.

use std::ffi::OsString;
use std::io::Write;

use obento::base::{Attr, FileKind, Mode};
use obento::vfs::Symlinks;
use obento::vfs::acl::{self, Acl};
use obento::volume::Owners;
use obento::walk::Walk;
use obento::{Error, Node};

use crate::change::acl::{AclStyle, Effective, lines};
use crate::change::each_below;
use crate::context::Context;
use crate::help::page::Page;
use crate::open::{Found, find_all};
use crate::output::{Outcome, Output};
use crate::report::Report;

/// The page of `getfacl`.
pub const PAGE: Page = Page::new(&[("obento getfacl disk.img:/srv", "Show the access control list")])
    .see_also(&["getfacl(1)", "acl(5)"]);

/// Show access control lists
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images, and files and directories in them
    #[arg(required = true, value_name = "IMAGE[:PATH]")]
    paths: Vec<OsString>,
    /// Show only the access ACL
    #[arg(short, long)]
    access: bool,
    /// Show only the default ACL
    #[arg(short, long)]
    default: bool,
    /// Omit the comments with name and owner
    #[arg(short = 'c', long)]
    omit_header: bool,
    /// Show the effective permissions of all entries
    #[arg(short = 'e', long, overrides_with = "no_effective")]
    all_effective: bool,
    /// Do not show effective permissions
    #[arg(short = 'E', long, overrides_with = "all_effective")]
    no_effective: bool,
    /// Omit files that have no ACL beyond their mode
    #[arg(short, long)]
    skip_base: bool,
    /// Also show the files below directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// With -R: follow all symbolic links
    #[arg(short = 'L', long, overrides_with = "physical")]
    logical: bool,
    /// Do not follow symbolic links
    #[arg(short = 'P', long, overrides_with = "logical")]
    physical: bool,
    /// Show owners as numbers
    #[arg(short, long)]
    numeric: bool,
    /// Keep the leading slash of paths
    #[arg(short = 'p', long)]
    absolute_names: bool,
}

/// Returns the access ACL and the default ACL of a file.
pub fn read(node: &Node, attr: &Attr) -> Result<(Acl, Option<Acl>), Error> {
    let list = |name: &[u8]| match node.get_xattr(name) {
        Ok(value) => Acl::decode(&value).map(Some),
        Err(error) if error == Error::NoData || error == Error::NotSupported => Ok(None),
        Err(error) => Err(error),
    };
    let access = list(acl::ACCESS)?.unwrap_or_else(|| Acl::from_mode(attr.mode));
    let default = if attr.is_dir() { list(acl::DEFAULT)? } else { None };
    Ok((access, default))
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let symlinks = if args.physical { Symlinks::Keep } else { Symlinks::Follow };
    let found = find_all(&args.paths, symlinks, context, |report| context.warn(report));
    let mut out = Output::stdout();
    let mut stop = Ok(());
    for file in found {
        let mut one = |node: &Node, attr: &Attr, shown: &[u8]| {
            let text = match read(node, attr) {
                Ok(lists) => text(args, &file, attr, shown, lists, out.is_terminal()),
                Err(error) => return Err(Report::on("cannot read the ACL of", shown, error)),
            };
            if stop.is_ok() {
                stop = out.write_all(&text);
            }
            Ok(())
        };
        if !args.recursive {
            let attr = file.node.attr();
            let done = attr
                .map_err(|error| Report::on("cannot access", file.shown(), error))
                .and_then(|attr| one(&file.node, &attr, &file.shown()));
            done.unwrap_or_else(|report| context.warn(&report));
            continue;
        }
        let symlinks = if args.logical { Symlinks::Follow } else { Symlinks::Keep };
        each_below(
            Walk::new(file.node.clone()).symlinks(symlinks),
            &file,
            context,
            |entry, shown| match entry.attr.kind {
                FileKind::Symlink => Ok(()),
                _ => one(&entry.node, &entry.attr, shown),
            },
        );
    }
    stop?;
    out.finish()
}

fn text(
    args: &Args,
    file: &Found,
    attr: &Attr,
    shown: &[u8],
    (access, default): (Acl, Option<Acl>),
    terminal: bool,
) -> Vec<u8> {
    if args.skip_base && access.is_mode_alone() && default.is_none() {
        return Vec::new();
    }
    let owners = file.location.volume.owners();
    let mut text = Vec::new();
    if !args.omit_header {
        let path = match file.location.is_of_whole_disk(&args.paths) {
            // The names of all file systems of a disk are distinct.
            true => shown,
            false => shown.strip_prefix(&*file.location.prefix).unwrap_or(shown),
        };
        text.extend_from_slice(b"# file: ");
        text.extend_from_slice(&super::getfattr::quoted_path(path, args.absolute_names, terminal));
        text.extend_from_slice(header(attr, owners, args.numeric).as_bytes());
    }
    let effective = match (args.all_effective, args.no_effective) {
        (true, _) => Effective::Always,
        (false, true) => Effective::Never,
        (false, false) => Effective::WhereLess,
    };
    let style = AclStyle { numeric: args.numeric, effective, aligned: terminal };
    if !args.default || args.access {
        text.extend_from_slice(lines(&access, "", style, owners).as_bytes());
    }
    if let Some(default) = default.filter(|_| !args.access || args.default) {
        // The default ACL alone needs no prefix.
        let prefix = if args.default && !args.access { "" } else { "default:" };
        text.extend_from_slice(lines(&default, prefix, style, owners).as_bytes());
    }
    text.push(b'\n');
    text
}

fn header(attr: &Attr, owners: &Owners, numeric: bool) -> String {
    let name = |name: Option<&[u8]>, id: u32| match name.filter(|_| !numeric) {
        Some(name) => crate::report::printable(name),
        None => id.to_string(),
    };
    let owner = name(owners.user(attr.uid), attr.uid);
    let group = name(owners.group(attr.gid), attr.gid);
    let mut text = format!("\n# owner: {owner}\n# group: {group}\n");
    let flags: String = [(Mode::SET_UID, 's'), (Mode::SET_GID, 's'), (Mode::STICKY, 't')]
        .map(|(bit, letter)| if attr.mode.contains(bit) { letter } else { '-' })
        .iter()
        .collect();
    if flags != "---" {
        text.push_str(&format!("# flags: {flags}\n"));
    }
    text
}
