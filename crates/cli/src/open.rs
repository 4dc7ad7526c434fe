//! From arguments to inodes. Addresses are parsed, each image is opened once, and rights are given up. Only then are
//! the contents of an image read.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use obento::{
    Access, Address, Checksums, Error, FileId, FileSelector, HostError, Image, ImageFile, Ino, Locking, Node,
    Notice, OpenError, Operand, Options, PartSelector, Purpose, Replay, Symlinks, Unpacking, Volume, Writing,
    engine, is_pattern,
};

use crate::cli::{EngineChoice, GlobalOptions};
use crate::context::Context;
use crate::progress::Meter;
use crate::report::Report;
use crate::servers::Servers;
use crate::shown::in_vain;

/// What an argument names, with its image opened.
pub enum Opened {
    /// `-`: standard input.
    Stdio,
    /// A path or inode in an image.
    Image(Location),
}

/// A path or inode in an open volume.
#[derive(Clone)]
pub struct Location {
    pub volume: Rc<Volume>,
    pub place: FileSelector,
    /// The text before the path in messages: `disk.img@2:`.
    pub prefix: Rc<[u8]>,
}

/// A file that an argument names, directly or by a pattern.
#[derive(Clone)]
pub struct Found {
    pub location: Location,
    pub node: Node,
}

/// The open images and volumes, so that each is opened, and its notices are printed, once.
#[derive(Default)]
pub struct Opener {
    images: Vec<OpenImage>,
    /// Images whose files are open but not decoded yet.
    prepared: Vec<Prepared>,
    /// The files that paths led to, before the process lost access to the host.
    ids: Vec<(PathBuf, Option<FileId>)>,
    volumes: Vec<OpenVolume>,
    servers: Servers,
}

/// The open files of an image, or the error of opening them.
struct Prepared {
    path: PathBuf,
    id: Option<FileId>,
    file: Result<ImageFile, OpenError>,
}

/// An open image.
struct OpenImage {
    path: PathBuf,
    /// The identity of the host file, whatever its path.
    id: Option<FileId>,
    image: Rc<Image>,
    /// Whether its notices were printed.
    is_reported: bool,
}

/// An open volume, with the address that names it.
struct OpenVolume {
    path: PathBuf,
    part: Option<PartSelector>,
    access: Access,
    prefix: Rc<[u8]>,
    volume: Rc<Volume>,
    /// Whether its hidden attributes were reported as lost.
    is_loss_reported: bool,
    /// The number of its notices that were reported.
    reported: usize,
}

impl Opener {
    /// Returns the image at `path` without printing its notices, for a caller that shows them in another way.
    pub fn quiet_image(&mut self, path: &Path, context: &Context) -> Result<Rc<Image>, OpenError> {
        self.image_as(path, Access::ReadOnly, context).map(|known| known.image.clone())
    }

    /// Returns the image at `path`.
    pub fn image(&mut self, path: &Path, context: &Context) -> Result<Rc<Image>, Report> {
        self.reported_image(path, Access::ReadOnly, context)
    }

    fn reported_image(
        &mut self,
        path: &Path,
        access: Access,
        context: &Context,
    ) -> Result<Rc<Image>, Report> {
        let known = self.image_as(path, access, context).map_err(cannot_open)?;
        if !std::mem::replace(&mut known.is_reported, true) {
            let name = path.as_os_str().as_bytes();
            known.image.notices().iter().for_each(|notice| context.note(name, notice));
        }
        Ok(known.image.clone())
    }

    /// Returns the image at `path`, which is opened once whatever its path. Errors: InUse if it was opened for reading and is to be
    /// changed.
    fn image_as(
        &mut self,
        path: &Path,
        access: Access,
        context: &Context,
    ) -> Result<&mut OpenImage, OpenError> {
        let id = self.id_of(path);
        let is_it = |known: &OpenImage| known.path == path || id.is_some() && known.id == id;
        if access == Access::ReadWrite {
            self.forget_unused(is_it);
        }
        if let Some(index) = self.images.iter().position(is_it) {
            let known = &mut self.images[index];
            return match (known.image.access(), access) {
                (Access::ReadOnly, Access::ReadWrite) => {
                    Err(OpenError::InUse { image: path.into(), part: None })
                }
                _ => Ok(known),
            };
        }
        let is_of_it = |prepared: &Prepared| prepared.path == path || id.is_some() && prepared.id == id;
        let prepared = self.prepared.iter().position(is_of_it);
        let prepared = prepared.map(|index| self.prepared.remove(index).file);
        let image = Rc::new(open_image(path, prepared, access, context)?);
        self.images.push(OpenImage { path: path.to_owned(), id, image, is_reported: false });
        let last = self.images.len() - 1;
        Ok(&mut self.images[last])
    }

    /// Opens the files of the image at `path` without decoding them, unless it is open already.
    pub fn prepare(&mut self, path: &Path, access: Access, context: &Context) {
        if let Some(command) = obento::server_of(path) {
            return self.servers.start(path, command);
        }
        let id = FileId::of_path(path);
        self.ids.push((path.to_owned(), id));
        let is_it = |other: &Path, other_id| other == path || id.is_some() && other_id == id;
        let is_known = self.images.iter().any(|known| is_it(&known.path, known.id))
            || self.prepared.iter().any(|prepared| is_it(&prepared.path, prepared.id));
        if !is_known {
            let options = Options { access, writing: Writing::Behind, ..options(context.options()) };
            let file = ImageFile::open(path, &options);
            self.prepared.push(Prepared { path: path.to_owned(), id, file });
        }
    }

    /// Returns the identity of the host file at `path`.
    fn id_of(&self, path: &Path) -> Option<FileId> {
        let known = self.ids.iter().find(|(known, _)| known == path);
        known.map_or_else(|| FileId::of_path(path), |(_, id)| *id)
    }

    /// Closes an image that was opened for reading and is no longer used, so that another line of a shell can change it.
    fn forget_unused(&mut self, is_it: impl Fn(&OpenImage) -> bool) {
        let Some(index) = self.images.iter().position(|known| {
            is_it(known) && known.image.access() == Access::ReadOnly && Rc::strong_count(&known.image) == 1
        }) else {
            return;
        };
        let path = &self.images[index].path;
        let is_of_it = |known: &OpenVolume| known.path == *path;
        if self.volumes.iter().all(|known| !is_of_it(known) || Rc::strong_count(&known.volume) == 1) {
            self.volumes.retain(|known| !is_of_it(known));
            self.images.remove(index);
        }
    }

    /// Writes the changes of all volumes to stable storage, and passes each failure to `failed`.
    pub fn sync(&self, failed: impl Fn(&Report)) {
        for known in self.volumes.iter().filter(|known| known.volume.is_writable()) {
            if let Err(error) = known.volume.sync() {
                let shown = known.prefix.strip_suffix(b":").unwrap_or(&known.prefix);
                failed(&Report::on("cannot write the changes to stable storage in", shown, error));
            }
        }
    }

    /// Returns the host files that all open images are read from.
    pub fn host_files(&self) -> Vec<FileId> {
        let decoded = self.images.iter().flat_map(|known| known.image.host_files()).copied();
        let files = self.prepared.iter().filter_map(|prepared| prepared.file.as_ref().ok());
        decoded.chain(files.flat_map(ImageFile::host_files)).collect()
    }

    /// Returns the volume that `address` names, for reading; a volume that is open for change already is reused.
    pub fn volume(&mut self, address: &Address, context: &Context) -> Result<Rc<Volume>, Report> {
        self.volume_as(address, Access::ReadOnly, context)
    }

    /// Returns the volume that `address` names, for change. Open volumes for change before those for reading, since an image is opened
    /// once. [`Context::close`] ends the changes. Errors: also if changes are forbidden.
    pub fn volume_for_change(&mut self, address: &Address, context: &Context) -> Result<Rc<Volume>, Report> {
        let shown = address.image.as_os_str().as_bytes();
        context.expect_changes_allowed(shown)?;
        let reason = match context.options() {
            GlobalOptions { no_replay: true, .. } => {
                Some("--no-replay shows a past state, which cannot be changed")
            }
            GlobalOptions { ignore_checksums: true, .. } => Some("--ignore-checksums is for reading only"),
            GlobalOptions { no_lock: true, .. } => Some("--no-lock is for reading only"),
            _ => None,
        };
        if let Some(reason) = reason {
            return Err(Report::on("cannot change", shown, reason).help("omit this option"));
        }
        self.volume_as(address, Access::ReadWrite, context)
    }

    fn volume_as(
        &mut self,
        address: &Address,
        access: Access,
        context: &Context,
    ) -> Result<Rc<Volume>, Report> {
        let serves = |known: &&OpenVolume| {
            known.path == address.image
                && known.part == address.part
                && (known.access == access || access == Access::ReadOnly)
        };
        if let Some(known) = self.volumes.iter().find(serves) {
            return Ok(known.volume.clone());
        }
        if let Some(command) = address.server() {
            let volume = Rc::new(self.servers.volume(&address.image, command, access)?);
            let (path, prefix, again) = (address.image.clone(), prefix(address).into(), volume.clone());
            let (part, is_loss_reported, reported) = (None, false, 0);
            self.volumes.push(OpenVolume { path, part, access, prefix, volume, is_loss_reported, reported });
            return Ok(again);
        }
        let image = self.reported_image(&address.image, access, context)?;
        let part = address.part.as_ref();
        let volume = match access {
            Access::ReadOnly => image.volume_to_read(part),
            Access::ReadWrite => image.volume(part),
        };
        let volume = Rc::new(volume.map_err(Report::plain)?);
        let prefix: Rc<[u8]> = prefix(address).into();
        let notices = volume.info().notices;
        let reported = notices.len();
        let is_reported = |notice: &Notice| !matches!(notice, Notice::Hidden { .. });
        for notice in notices.into_iter().filter(is_reported) {
            let shown = prefix.strip_suffix(b":").unwrap_or(&prefix);
            context.note(shown, crate::report::notice(&notice, access, &image));
            if matches!(notice, Notice::BackupSuperBlock { .. }) && can_be_checked(&volume, context) {
                context.note(
                    shown,
                    "the super block is damaged; run 'obento check -y' to restore it from a copy",
                );
            }
        }
        if let Some(why) = in_vain(context.options().shown(), &volume) {
            let shown = prefix.strip_suffix(b":").unwrap_or(&prefix);
            context.note(shown, format!("--mount-options has no effect: {why}"));
        }
        let (path, part) = (address.image.clone(), address.part.clone());
        let volume_again = volume.clone();
        let is_loss_reported = false;
        self.volumes.push(OpenVolume { path, part, access, prefix, volume, is_loss_reported, reported });
        Ok(volume_again)
    }

    /// Reports the attributes that a command requested and a volume hides, once per volume.
    pub fn report_hidden_attributes(&mut self, lost: impl Fn(&Report)) {
        let missed = |known: &&mut OpenVolume| known.volume.vfs().has_asked_for_xattrs();
        for known in self.volumes.iter_mut().filter(|known| !known.is_loss_reported).filter(missed) {
            known.is_loss_reported = true;
            for notice in known.volume.info().notices {
                let Notice::Hidden { what, option } = notice else { continue };
                let shown = known.prefix.strip_suffix(b":").unwrap_or(&known.prefix);
                let cause = format!("the kernel of the kernel engine was built without {option}");
                let report = Report::on(&format!("cannot read the {what} of"), shown, cause);
                lost(&report.help("set OBENTO_LINUX to a kernel that has this option"));
            }
        }
    }

    /// Reports the damage that the drivers found since the volumes were opened, each damage once.
    /// Reports the damage that the drivers found since the volumes were opened, once per problem.
    pub fn report_damage(&mut self, context: &Context, failed: impl Fn(&Report)) {
        for known in &mut self.volumes {
            let notices = known.volume.info().notices;
            let first = std::mem::replace(&mut known.reported, notices.len());
            for notice in notices.iter().skip(first) {
                let Notice::Damaged(error) = notice else { continue };
                let shown = known.prefix.strip_suffix(b":").unwrap_or(&known.prefix);
                let report = Report::on("found damage in", shown, error);
                failed(&match can_be_checked(&known.volume, context) {
                    true => report.help("run 'obento check -y' to repair the volume"),
                    false => report,
                });
            }
        }
    }

    /// Ends the changes of all volumes, and passes each failure to `failed`.
    pub fn close(&self, failed: impl Fn(&Report)) {
        for known in self.volumes.iter().filter(|known| known.volume.is_writable()) {
            if let Err(error) = known.volume.close() {
                let shown = known.prefix.strip_suffix(b":").unwrap_or(&known.prefix);
                let advice = crate::report::to_close(&error.to_string());
                let report = Report::on("cannot write the changes to stable storage in", shown, error);
                failed(&report.help(advice));
            }
        }
    }
}

/// Returns whether `obento check` supports the volume.
fn can_be_checked(volume: &Volume, context: &Context) -> bool {
    let driver = context.registry().find(volume.info().probe.fs_type);
    driver.is_some_and(|driver| driver.check().is_some())
}

/// Opens an image, with a progress bar if decompression takes long.
fn open_image(
    path: &Path,
    prepared: Option<Result<ImageFile, OpenError>>,
    access: Access,
    context: &Context,
) -> Result<Image, OpenError> {
    let meter = Arc::new(Mutex::new(Meter::new(context, "unpacking")));
    let (shared, name) = (meter.clone(), path.as_os_str().as_bytes().to_vec());
    let on_unpacking = move |unpacking: Unpacking| {
        shared.lock().unwrap_or_else(PoisonError::into_inner).update(unpacking.read, unpacking.total, &name);
    };
    let on_unpacking: Option<Arc<dyn Fn(Unpacking) + Send + Sync>> = Some(Arc::new(on_unpacking));
    let options = Options { access, on_unpacking, writing: Writing::Behind, ..options(context.options()) };
    let opened = match prepared {
        Some(file) => file.and_then(|file| file.watched(&options).decode(context.registry())),
        None => Image::open(path, context.registry(), &options),
    };
    meter.lock().unwrap_or_else(PoisonError::into_inner).finish();
    opened
}

/// Returns the report that the command needs an image, and `server` is a FUSE server or an NFS export.
pub fn needs_image(server: &Path) -> Report {
    Report::on(
        "cannot use",
        server.as_os_str().as_bytes(),
        "it is a file server, and this command needs an image",
    )
    .help(
        "commands that read files take such addresses: ls, tree, cat, stat, find, du, cp, export, diff, grep",
    )
}

/// Returns the report of an image that cannot be opened, with the option that opens it.
pub fn cannot_open(error: OpenError) -> Report {
    let report = Report::plain(&error);
    match error {
        OpenError::Missing { image } if obento::server_of(&image).is_some() => needs_image(&image),
        OpenError::Host(HostError::Unsupported { format, path, feature }) => {
            let image = crate::report::subject(path.as_os_str().as_bytes());
            match (format, &*feature) {
                (_, feature) if feature.contains("qemu-img check") => {
                    report.help(format!("repair the image: qemu-img check -r all {image}"))
                }
                (_, "encryption") => {
                    report.help("decrypt the image first, for example with qemu-img convert")
                }
                ("qcow2" | "vhd" | "vhdx" | "vmdk" | "vdi", _) => {
                    report.help(format!("convert the image: qemu-img convert -O qcow2 {image} plain.qcow2"))
                }
                _ => report,
            }
        }
        OpenError::Host(HostError::Reference { .. }) => {
            report.help("use --allow-backing if you trust the image: it can name any file that you can read")
        }
        OpenError::Host(HostError::InUse { purpose: Purpose::Read, .. }) => {
            report.also("use --no-lock to read it anyway; the result may mix old and new contents")
        }
        _ => report,
    }
}

/// Returns the options for opening images.
pub fn options(global: &GlobalOptions) -> Options {
    Options {
        fs_type: global.fs_type.clone(),
        replay: if global.no_replay { Replay::Skip } else { Replay::InMemory },
        super_block: global.superblock,
        checksums: if global.ignore_checksums { Checksums::Ignore } else { Checksums::Verify },
        locking: if global.no_lock { Locking::Skip } else { Locking::Take },
        io: global.io.into(),
        allow_backing: global.allow_backing,
        journal: global.journal.clone(),
        shown: global.shown(),
        unpack: global.unpack(),
        ..Options::default()
    }
}

/// Returns `disk.img@2:`, as the user wrote it.
fn prefix(address: &Address) -> Vec<u8> {
    let mut prefix = address.image.as_os_str().as_bytes().to_vec();
    if let Some(part) = &address.part {
        prefix.extend_from_slice(format!("@{part}").as_bytes());
    }
    prefix.push(b':');
    prefix
}

/// The image of a shell.
pub struct ShellImage {
    /// The root directory of the image.
    pub root: Address,
    /// Whether the image is open for change.
    pub access: Access,
    /// The current directory, an absolute path.
    pub directory: RefCell<Vec<u8>>,
}

impl ShellImage {
    /// Returns what `argument` names in the shell: a path in its image, `<12>`, `host:PATH`, `image:ADDRESS` or `-`.
    fn operand(&self, argument: &OsStr) -> Result<Operand, Report> {
        let text = argument.as_bytes();
        if text == b"-" || text.starts_with(b"host:") {
            return Operand::parse(argument).map_err(Report::plain);
        }
        if let Some(address) = text.strip_prefix(b"image:") {
            let address = Address::parse(OsStr::from_bytes(address)).map_err(Report::plain)?;
            return Ok(Operand::Image(address));
        }
        let ino = text.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
        let ino = ino.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
        let place =
            ino.map_or_else(|| FileSelector::Path(self.path(text)), |ino| FileSelector::Inode(Ino(ino)));
        Ok(Operand::Image(Address { place: Some(place), ..self.root.clone() }))
    }

    /// Returns `path` relative to the current directory as an absolute path.
    pub fn path(&self, path: &[u8]) -> Vec<u8> {
        match path {
            [b'/', ..] => path.to_vec(),
            [] => self.directory.borrow().clone(),
            _ => join(&self.directory.borrow(), path),
        }
    }
}

/// Returns what an argument names.
pub fn operand(argument: &OsStr, context: &Context) -> Result<Operand, Report> {
    match context.inside() {
        Some(inside) => inside.operand(argument),
        None => Operand::parse_with(argument, &|path| context.look_up(path)).map_err(Report::plain),
    }
}

/// Returns the place in an image that an argument names; a host file is an error.
pub fn address(argument: &OsStr, context: &Context) -> Result<Address, Report> {
    match context.inside().map(|inside| inside.operand(argument)).transpose()? {
        Some(Operand::Image(address)) => Ok(address),
        Some(_) => Err(Report::on("cannot open", argument.as_bytes(), "not a path inside the image")),
        None => Address::parse_with(argument, &|path| context.look_up(path)).map_err(Report::plain),
    }
}

/// Opens the file in an image that `argument` names; a bare image is its root.
pub fn open(argument: &OsStr, context: &Context) -> Result<Location, Report> {
    let address = address(argument, context)?;
    open_address(address, context)
}

/// Opens the file that `argument` names, or standard input. A bare image is an error.
pub fn open_file(argument: &OsStr, context: &Context) -> Result<Opened, Report> {
    match operand(argument, context)? {
        Operand::Stdio => Ok(Opened::Stdio),
        Operand::Image(address) => open_address(address, context).map(Opened::Image),
        Operand::Host(path) => Err(no_file("cannot open", path.as_os_str().as_bytes())),
    }
}

/// Opens the file that `argument` names, for change. An argument without a path inside an image is rejected, so that a forgotten `:/`
/// never changes a host file. [`Context::close`] ends the changes.
pub fn open_for_change(argument: &OsStr, context: &Context) -> Result<Location, Report> {
    let operand = operand(argument, context)?;
    match operand {
        Operand::Image(address) if address.place.is_some() => {
            open_address_for_change(address, argument, context)
        }
        Operand::Stdio => Err(Report::new("cannot change standard input", "not a path inside an image")),
        Operand::Image(_) | Operand::Host(_) => Err(no_file("cannot change", argument.as_bytes())),
    }
}

/// Opens the volume that `argument` names, for an operation on the whole volume: a forgotten `:/` does no harm.
pub fn open_volume_for_change(argument: &OsStr, context: &Context) -> Result<Location, Report> {
    open_address_for_change(address(argument, context)?, argument, context)
}

fn open_address_for_change(
    address: Address,
    argument: &OsStr,
    context: &Context,
) -> Result<Location, Report> {
    context.expect_open_for_change(&address, argument.as_bytes())?;
    let volume = context.opener().volume_for_change(&address, context)?;
    Ok(location(volume, address))
}

fn no_file(action: &str, shown: &[u8]) -> Report {
    let example = format!("{}:/PATH", String::from_utf8_lossy(shown));
    Report::on(action, shown, "not a path inside an image")
        .help(format!("add the path after the image: {}", crate::report::subject(example)))
}

fn open_address(address: Address, context: &Context) -> Result<Location, Report> {
    let volume = context.opener().volume(&address, context)?;
    Ok(location(volume, address))
}

/// The meaning of an argument without a path in an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BareOperand {
    /// The root of an image, or the whole image.
    Image,
    /// A host file.
    HostFile,
}

/// Opens the files of the images that `arguments` name, and gives up all rights before any byte of them is decoded. Does nothing if
/// decoding needs rights: images may name other files (`--allow-backing`), or the kernel engine may have to start a kernel.
pub fn seal_before_decoding<'a>(
    arguments: impl IntoIterator<Item = &'a OsString>,
    bare: BareOperand,
    access: Access,
    context: &Context,
) {
    if prepare(arguments, bare, access, context) {
        context.seal();
    }
}

/// Returns whether a kernel is installed that opens volumes of some type.
fn has_kernel() -> bool {
    engine::types::TYPES.iter().any(|kind| engine::kernel_of(kind).is_ok())
}

/// Opens the files of the images that `arguments` name. Returns whether they can be decoded without rights.
pub fn prepare<'a>(
    arguments: impl IntoIterator<Item = &'a OsString>,
    bare: BareOperand,
    access: Access,
    context: &Context,
) -> bool {
    let options = context.options();
    let needs_no_rights = context.gives_up_rights()
        && !options.allow_backing
        && (options.engine == Some(EngineChoice::Native) || !has_kernel());
    if needs_no_rights {
        for argument in arguments {
            // Parse the argument in both ways, so that both results are known when the host cannot be read any more.
            let (operand, address) = (operand(argument, context), address(argument, context));
            let image = match operand {
                Ok(Operand::Image(address)) => Some(address.image),
                _ => address.ok().map(|address| address.image).filter(|_| bare == BareOperand::Image),
            };
            if let Some(image) = image {
                context.opener().prepare(&image, access, context);
            }
        }
    }
    needs_no_rights
}

/// Returns the place in `volume` that `address` names.
pub fn location(volume: Rc<Volume>, address: Address) -> Location {
    let prefix = prefix(&address).into();
    Location { volume, place: address.place.unwrap_or(FileSelector::Path(b"/".to_vec())), prefix }
}

/// Opens all of `arguments`, gives up rights, and finds the files. Passes each failure to `failed` and continues.
pub fn find_all(
    arguments: &[OsString],
    symlinks: Symlinks,
    context: &Context,
    failed: impl Fn(&Report),
) -> Vec<Found> {
    seal_before_decoding(arguments, BareOperand::Image, Access::ReadOnly, context);
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
    /// Returns a place in `volume`, which `address` names.
    pub fn within(volume: Rc<Volume>, address: &Address, place: FileSelector) -> Self {
        Self { volume, place, prefix: prefix(address).into() }
    }

    /// Returns the address of a path below this place's image, for messages and headers.
    pub fn shown(&self) -> Vec<u8> {
        let mut shown = self.prefix.to_vec();
        match &self.place {
            FileSelector::Path(path) => shown.extend_from_slice(path),
            FileSelector::Inode(ino) => shown.extend_from_slice(format!("<{ino}>").as_bytes()),
        }
        shown
    }

    /// Returns the file, or the files that match if no file has exactly this name and the name is a pattern. `action`, such as
    /// `cannot access`, starts the message of an error.
    pub fn find(self, symlinks: Symlinks, action: &str) -> Result<Vec<Found>, Report> {
        let error = match self.volume.resolve(&self.place, symlinks) {
            Ok(node) => return Ok(vec![Found { node, location: self }]),
            Err(error) => error,
        };
        let failed = |cause: &dyn std::fmt::Display| Report::on(action, self.shown(), cause);
        let pattern = match &self.place {
            FileSelector::Path(pattern) => pattern,
            FileSelector::Inode(_) if error == Error::Stale => {
                return Err(failed(&"no file has this inode number"));
            }
            FileSelector::Inode(_) => return Err(failed(&error)),
        };
        if error != Error::NotFound || !is_pattern(pattern) {
            return Err(failed(&error));
        }
        let matches = self.volume.glob(pattern).map_err(|error| failed(&error))?;
        if matches.is_empty() {
            return Err(Report::on(action, self.shown(), "no file has this name or matches it as a pattern"));
        }
        let at = |path| Self { place: FileSelector::Path(path), ..self.clone() };
        let follow = |path: Vec<u8>, node: Node| match symlinks {
            // A symbolic link to nothing is found too, as a shell would pass it.
            Symlinks::Follow => self.volume.resolve(&FileSelector::Path(path), symlinks).unwrap_or(node),
            Symlinks::Keep => node,
        };
        let found = matches.into_iter();
        Ok(found.map(|(path, node)| Found { node: follow(path.clone(), node), location: at(path) }).collect())
    }
}

impl Found {
    /// Returns the address, for messages and headers.
    pub fn shown(&self) -> Vec<u8> {
        self.location.shown()
    }
}

/// Joins `directory` and a name in it with one slash.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + name.len() + 1);
    path.extend_from_slice(directory);
    if !directory.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
