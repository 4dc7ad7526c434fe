//! The open images and volumes of a command.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use obento::address::{Address, PartSelector};
use obento::driver::{Access, Notice};
use obento::host::{AccessLimit, FileId, Unpacking};
use obento::image::{ImageFile, Writing};
use obento::{Image, OpenError, Options, Registry, Volume};

use super::location::prefix;
use super::notes::NotedVolume;
use super::reports::{can_be_repaired, cannot_open, damage, image_note, not_opened};
use crate::messages::Messages;
use crate::options::GlobalOptions;
use crate::progress::Meter;
use crate::report::Report;
use crate::servers::Servers;
use crate::shown::{GivenNames as _, ignored, in_vain};

/// How a command opens images, and where the notices about them are printed.
#[derive(Clone, Copy)]
pub struct Opening<'a> {
    pub options: &'a GlobalOptions,
    pub registry: &'a Registry,
    pub messages: &'a Messages,
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
    /// Whether a command reads it, and does not only examine what it is.
    is_used: bool,
    /// Whether its damage was reported.
    is_damage_reported: bool,
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
    /// Returns the image at `path` without printing its notices, for a caller that only examines whether the file is an
    /// image.
    pub fn examined_image(&mut self, path: &Path, with: Opening<'_>) -> Result<Rc<Image>, OpenError> {
        self.image_as(path, Access::ReadOnly, with).map(|known| known.image.clone())
    }

    /// Returns the image at `path` without printing its notices, for a caller that shows them in another way. Damage
    /// is reported as for each image.
    pub fn quiet_image(&mut self, path: &Path, with: Opening<'_>) -> Result<Rc<Image>, OpenError> {
        let known = self.image_as(path, Access::ReadOnly, with)?;
        known.is_used = true;
        Ok(known.image.clone())
    }

    /// Returns the image at `path`.
    pub fn image(&mut self, path: &Path, with: Opening<'_>) -> Result<Rc<Image>, Report> {
        self.reported_image(path, Access::ReadOnly, with)
    }

    fn reported_image(
        &mut self,
        path: &Path,
        access: Access,
        with: Opening<'_>,
    ) -> Result<Rc<Image>, Report> {
        let known = self.image_as(path, access, with).map_err(cannot_open)?;
        known.is_used = true;
        if !std::mem::replace(&mut known.is_reported, true) {
            let name = path.as_os_str().as_bytes();
            let notes = known.image.notices().iter().filter(|notice| !notice.is_damage());
            notes.for_each(|notice| with.messages.note(name, image_note(notice, &known.image)));
        }
        Ok(known.image.clone())
    }

    /// Returns the image at `path`, which is opened once whatever its path. Fails with `InUse` if it was opened for
    /// reading and is to be changed.
    fn image_as(
        &mut self,
        path: &Path,
        access: Access,
        with: Opening<'_>,
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
        let image = Rc::new(open_image(path, prepared, access, with)?);
        let (is_reported, is_used, is_damage_reported) = (false, false, false);
        self.images.push(OpenImage {
            path: path.to_owned(),
            id,
            image,
            is_reported,
            is_used,
            is_damage_reported,
        });
        let last = self.images.len() - 1;
        Ok(&mut self.images[last])
    }

    /// Opens the files of the image at `path` without decoding them, unless it is open already.
    pub fn prepare(&mut self, path: &Path, access: Access, with: Opening<'_>) {
        if let Some(command) = obento::address::server_of(path) {
            return self.servers.start(path, command, access);
        }
        let id = FileId::of_path(path);
        self.ids.push((path.to_owned(), id));
        let is_it = |other: &Path, other_id| other == path || id.is_some() && other_id == id;
        let is_known = self.images.iter().any(|known| is_it(&known.path, known.id))
            || self.prepared.iter().any(|prepared| is_it(&prepared.path, prepared.id));
        if !is_known {
            let options = Options { access, writing: Writing::Behind, ..with.options.image_options() };
            let file = ImageFile::open(path, &options);
            self.prepared.push(Prepared { path: path.to_owned(), id, file });
        }
    }

    /// Returns the files of the image at `path`, if they are open and not decoded yet.
    pub fn prepared_mut(&mut self, path: &Path) -> Option<&mut ImageFile> {
        self.prepared.iter_mut().find(|prepared| prepared.path == path)?.file.as_mut().ok()
    }

    /// Returns the limit that the image at `path`, which is open, sets to the permissions of a copy of its bytes. For an
    /// image that could not be opened, this is the strictest limit.
    pub fn access_limit(&self, path: &Path) -> AccessLimit {
        let id = self.id_of(path);
        let is_it = |other: &Path, other_id| other == path || id.is_some() && other_id == id;
        let decoded = self.images.iter().find(|known| is_it(&known.path, known.id));
        let decoded = decoded.map(|known| known.image.access_limit());
        let prepared = || self.prepared.iter().find(|prepared| is_it(&prepared.path, prepared.id));
        let prepared = || prepared()?.file.as_ref().ok().map(ImageFile::access_limit);
        decoded.or_else(prepared).unwrap_or_else(AccessLimit::strictest)
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
    pub fn volume(&mut self, address: &Address, with: Opening<'_>) -> Result<Rc<Volume>, Report> {
        self.volume_as(address, Access::ReadOnly, with)
    }

    /// Returns the volume that `address` names, for change. Open volumes for change before those for reading, since an image is opened
    /// once. [`close`](Self::close) ends the changes. Also fails if changes are forbidden.
    pub fn volume_for_change(&mut self, address: &Address, with: Opening<'_>) -> Result<Rc<Volume>, Report> {
        let shown = address.image.as_os_str().as_bytes();
        let reason = match *with.options {
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
        self.volume_as(address, Access::ReadWrite, with)
    }

    fn volume_as(
        &mut self,
        address: &Address,
        access: Access,
        with: Opening<'_>,
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
        let image = self.reported_image(&address.image, access, with)?;
        let part = address.part.as_ref();
        let volume = match access {
            Access::ReadOnly => image.volume_to_read(part),
            Access::ReadWrite => image.volume(part),
        };
        let volume = Rc::new(volume.map_err(|error| not_opened(&error, with.options, with.registry))?);
        let prefix: Rc<[u8]> = prefix(address).into();
        let reported = volume.info().notices.len();
        let shown = prefix.strip_suffix(b":").unwrap_or(&prefix);
        NotedVolume { volume: &volume, image: &image, access }.print(shown, with.registry, with.messages);
        if let Some((given, why)) = in_vain(with.options.shown(), &volume) {
            let shown = prefix.strip_suffix(b":").unwrap_or(&prefix);
            let names = given.names();
            let what = match names.as_slice() {
                [name] => format!("the option {name} has"),
                names => format!("the options {} have", names.join(", ")),
            };
            with.messages.note(shown, format!("{what} no effect: {why}"));
        }
        let fs_type = volume.info().probe.fs_type;
        for name in ignored(with.options, fs_type) {
            let shown = prefix.strip_suffix(b":").unwrap_or(&prefix);
            with.messages.note(shown, format!("the option {name} has no effect on {fs_type} volumes"));
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

    /// Reports damaged compressed streams, and the damage that the drivers found since the volumes were opened, once per
    /// problem.
    pub fn report_damage(&mut self, registry: &Registry, failed: impl Fn(&Report)) {
        for known in self.images.iter_mut().filter(|known| known.is_used) {
            if !std::mem::replace(&mut known.is_damage_reported, true) {
                damage(known.path.as_os_str().as_bytes(), &known.image).for_each(|report| failed(&report));
            }
        }
        for known in &mut self.volumes {
            let notices = known.volume.info().notices;
            let first = std::mem::replace(&mut known.reported, notices.len());
            for notice in notices.iter().skip(first) {
                let Notice::Damaged(error) = notice else { continue };
                let shown = known.prefix.strip_suffix(b":").unwrap_or(&known.prefix);
                let report = Report::on("found damage in", shown, error);
                failed(&match can_be_repaired(&known.volume, registry) {
                    true => report.help(format!(
                        "run 'obento check -y {}' to repair the volume",
                        crate::report::shell_word(shown)
                    )),
                    false => report,
                });
            }
        }
    }

    /// Returns whether a volume is open for change.
    pub fn is_changing(&self) -> bool {
        self.volumes.iter().any(|known| known.volume.is_writable())
    }

    /// Ends the changes of all volumes, and passes each failure to `failed`.
    pub fn close(&self, failed: impl Fn(&Report)) {
        for known in self.volumes.iter().filter(|known| known.volume.is_writable()) {
            if let Err(error) = known.volume.close() {
                let shown = known.prefix.strip_suffix(b":").unwrap_or(&known.prefix);
                let advice = crate::report::to_close(&error);
                let report = Report::on("cannot write the changes to stable storage in", shown, error);
                failed(&report.help(advice));
            }
        }
    }
}

/// Opens an image, with a progress bar if decompression takes long.
fn open_image(
    path: &Path,
    prepared: Option<Result<ImageFile, OpenError>>,
    access: Access,
    with: Opening<'_>,
) -> Result<Image, OpenError> {
    let meter = Arc::new(Mutex::new(Meter::new(with.messages, "unpacking")));
    let (shared, name) = (meter.clone(), path.as_os_str().as_bytes().to_vec());
    let on_unpacking = move |unpacking: Unpacking| {
        shared.lock().unwrap_or_else(PoisonError::into_inner).update(unpacking.read, unpacking.total, &name);
    };
    let on_unpacking: Option<Arc<dyn Fn(Unpacking) + Send + Sync>> = Some(Arc::new(on_unpacking));
    let options = Options { access, on_unpacking, writing: Writing::Behind, ..with.options.image_options() };
    let opened = match prepared {
        Some(file) => file.and_then(|file| file.watched(&options).decode(with.registry)),
        None => Image::builder().registry(with.registry.clone()).options(options).open(path),
    };
    meter.lock().unwrap_or_else(PoisonError::into_inner).finish();
    opened
}
