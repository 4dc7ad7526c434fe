//! From the arguments of a command to inodes: addresses are parsed, images opened once each, rights given up, and only
//! then is anything inside an image looked at.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use obento::{
    Address, Error, FileId, HostError, Image, Node, OpenError, Operand, Options, Part, Place, Registry,
    Replay, Symlinks, Unpacking, Volume, is_pattern,
};

use crate::cli::GlobalOptions;
use crate::context::Context;
use crate::progress::Meter;
use crate::report::Report;

/// What an argument names, its image opened.
pub enum Opened {
    /// `-`: standard input.
    Stdio,
    /// A place in an image.
    Image(Location),
}

/// A place in an open volume.
#[derive(Clone)]
pub struct Location {
    pub volume: Rc<Volume>,
    pub place: Place,
    /// What stands before the path in messages: `disk.img@2:`.
    pub prefix: Rc<[u8]>,
}

/// A file that an argument named, itself or by a pattern.
#[derive(Clone)]
pub struct Found {
    pub location: Location,
    pub node: Node,
}

/// Images and volumes that are open already, so that each is opened, and its notices told, once.
#[derive(Default)]
pub struct Opener {
    registry: Registry,
    images: Vec<Known>,
    volumes: Vec<(PathBuf, Option<Part>, Rc<Volume>)>,
}

/// An open image.
struct Known {
    path: PathBuf,
    image: Rc<Image>,
    /// Whether its notices were told.
    is_told: bool,
}

impl Opener {
    /// The image at `path`, its notices not told: for who shows them in another way.
    pub fn quiet_image(&mut self, path: &Path, context: &Context) -> Result<Rc<Image>, OpenError> {
        if let Some(known) = self.images.iter().find(|known| known.path == path) {
            return Ok(known.image.clone());
        }
        let image = Rc::new(open_image(path, &self.registry, context)?);
        self.images.push(Known { path: path.to_owned(), image: image.clone(), is_told: false });
        Ok(image)
    }

    /// The image at `path`.
    pub fn image(&mut self, path: &Path, context: &Context) -> Result<Rc<Image>, Report> {
        let image = self.quiet_image(path, context).map_err(cannot_open)?;
        let known = self.images.iter_mut().find(|known| known.path == path);
        if known.is_some_and(|known| !std::mem::replace(&mut known.is_told, true)) {
            let name = path.as_os_str().as_bytes();
            image.notices().iter().for_each(|notice| context.note(name, notice));
        }
        Ok(image)
    }

    /// The files of the host that all open images are read from.
    pub fn host_files(&self) -> Vec<FileId> {
        self.images.iter().flat_map(|known| known.image.host_files()).copied().collect()
    }

    /// The volume that `address` names.
    pub fn volume(&mut self, address: &Address, context: &Context) -> Result<Rc<Volume>, Report> {
        let known =
            self.volumes.iter().find(|(path, part, _)| *path == address.image && *part == address.part);
        if let Some((.., volume)) = known {
            return Ok(volume.clone());
        }
        let image = self.image(&address.image, context)?;
        let volume = Rc::new(image.volume(address.part.as_ref()).map_err(Report::plain)?);
        let prefix = prefix(address);
        for notice in volume.info().notices {
            context.note(prefix.strip_suffix(b":").unwrap_or(&prefix), crate::report::notice(&notice));
        }
        self.volumes.push((address.image.clone(), address.part.clone(), volume.clone()));
        Ok(volume)
    }
}

/// Opens an image, with a progress bar where it has to be unpacked for long.
fn open_image(path: &Path, registry: &Registry, context: &Context) -> Result<Image, OpenError> {
    let meter = Arc::new(Mutex::new(Meter::new(context, "unpacking")));
    let (shared, name) = (meter.clone(), path.as_os_str().as_bytes().to_vec());
    let on_unpacking = move |unpacking: Unpacking| {
        shared.lock().unwrap_or_else(PoisonError::into_inner).update(unpacking.read, unpacking.total, &name);
    };
    let options = Options { on_unpacking: Some(Arc::new(on_unpacking)), ..options(context.options()) };
    let opened = Image::open(path, registry, &options);
    meter.lock().unwrap_or_else(PoisonError::into_inner).finish();
    opened
}

/// Why an image cannot be opened, and which option opens it.
pub fn cannot_open(error: OpenError) -> Report {
    let report = Report::plain(&error);
    match error {
        OpenError::Host(HostError::Unsupported { format: "qcow2", path, .. }) => {
            let image = crate::report::subject(path.as_os_str().as_bytes());
            report.help(format!("a plain image can be read: qemu-img convert -O qcow2 {image} plain.qcow2"))
        }
        OpenError::Host(HostError::Reference { .. }) => report
            .help("--allow-backing opens it, if you trust the image: it can name any file that you can read"),
        _ => report,
    }
}

/// How the options of every subcommand ask images to be opened.
fn options(global: &GlobalOptions) -> Options {
    Options {
        fs_type: global.fs_type.clone(),
        replay: if global.no_replay { Replay::Skip } else { Replay::InMemory },
        super_block: global.superblock,
        allow_backing: global.allow_backing,
        journal: global.journal.clone(),
        ..Options::default()
    }
}

/// `disk.img@2:`, as the person wrote it.
fn prefix(address: &Address) -> Vec<u8> {
    let mut prefix = address.image.as_os_str().as_bytes().to_vec();
    if let Some(part) = &address.part {
        prefix.extend_from_slice(format!("@{part}").as_bytes());
    }
    prefix.push(b':');
    prefix
}

/// Opens what `argument`, which must be in an image, names; a bare image is its root.
pub fn open(argument: &OsStr, context: &Context) -> Result<Location, Report> {
    let address = Address::parse(argument).map_err(Report::plain)?;
    open_address(address, context)
}

/// Opens what `argument` names; standard input is one choice, and a bare image is an error.
pub fn open_file(argument: &OsStr, context: &Context) -> Result<Opened, Report> {
    match Operand::parse(argument).map_err(Report::plain)? {
        Operand::Stdio => Ok(Opened::Stdio),
        Operand::Image(address) => open_address(address, context).map(Opened::Image),
        Operand::Host(path) => {
            let shown = path.as_os_str().as_bytes();
            let example = String::from_utf8_lossy(shown).into_owned();
            Err(Report::on("cannot open", shown, "this names no file in an image").help(format!(
                "name one after the image: {}",
                crate::report::subject(format!("{example}:/PATH"))
            )))
        }
    }
}

fn open_address(address: Address, context: &Context) -> Result<Location, Report> {
    let volume = context.opener().volume(&address, context)?;
    let prefix = prefix(&address).into();
    Ok(Location { volume, place: address.place.unwrap_or(Place::Path(b"/".to_vec())), prefix })
}

/// Opens all of `arguments`, gives up rights, and finds what they name. Each failure goes to `failed`, and the rest goes
/// on.
pub fn find_all(
    arguments: &[OsString],
    symlinks: Symlinks,
    context: &Context,
    failed: impl Fn(&Report),
) -> Vec<Found> {
    let opened: Vec<_> = arguments.iter().map(|argument| open(argument, context)).collect();
    context.seal();
    let mut found = Vec::new();
    for location in opened {
        match location.and_then(|location| location.find(symlinks, "cannot access")) {
            Ok(files) => found.extend(files),
            Err(report) => failed(&report),
        }
    }
    found
}

impl Location {
    /// The address of a path below this place's image, for messages and headers.
    pub fn shown(&self) -> Vec<u8> {
        let mut shown = self.prefix.to_vec();
        match &self.place {
            Place::Path(path) => shown.extend_from_slice(path),
            Place::Inode(ino) => shown.extend_from_slice(format!("<{ino}>").as_bytes()),
        }
        shown
    }

    /// The file, or the files if there is none of that very name and it reads as a pattern. `action` begins the
    /// message of an error: `cannot access`.
    pub fn find(self, symlinks: Symlinks, action: &str) -> Result<Vec<Found>, Report> {
        let error = match self.volume.resolve(&self.place, symlinks) {
            Ok(node) => return Ok(vec![Found { node, location: self }]),
            Err(error) => error,
        };
        let failed = |cause: &dyn std::fmt::Display| Report::on(action, self.shown(), cause);
        let pattern = match &self.place {
            Place::Path(pattern) => pattern,
            Place::Inode(_) if error == Error::Stale => return Err(failed(&"no file has this inode number")),
            Place::Inode(_) => return Err(failed(&error)),
        };
        if error != Error::NotFound || !is_pattern(pattern) {
            return Err(failed(&error));
        }
        let matches = self.volume.glob(pattern).map_err(|error| failed(&error))?;
        if matches.is_empty() {
            return Err(Report::on(
                action,
                self.shown(),
                "no file has such a name, and none matches it as a pattern",
            ));
        }
        let at = |path| Self { place: Place::Path(path), ..self.clone() };
        let follow = |path: Vec<u8>, node: Node| match symlinks {
            // A link that leads nowhere is found all the same, as a shell would hand it over.
            Symlinks::Follow => self.volume.resolve(&Place::Path(path), symlinks).unwrap_or(node),
            Symlinks::Keep => node,
        };
        let found = matches.into_iter();
        Ok(found.map(|(path, node)| Found { node: follow(path.clone(), node), location: at(path) }).collect())
    }
}

impl Found {
    /// The address, for messages and headers.
    pub fn shown(&self) -> Vec<u8> {
        self.location.shown()
    }
}

/// `directory` and a name in it, with one slash between them.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + name.len() + 1);
    path.extend_from_slice(directory);
    if !directory.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
