//! Opens a damaged volume, and finds the files that no directory leads to, as a repair finds them, on a copy in memory.

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use obento::OpenError;
use obento::address::{Address, FileSelector};
use obento::base::{FileKind, Ino, Quantity};
use obento::block::{BlockDevice, Overlay};
use obento::check::check;
use obento::copy::{Observer as _, Problem};
use obento::driver::{CheckOptions, Finding, RepairMode};
use obento::env::SystemClock;
use obento::vfs::Symlinks;
use obento::walk::{Step, Walk};
use obento::{Image, Options, Volume};

use super::bad::BadRanges;
use super::report::Recovery;
use super::shown;
use super::verify::{Verifier, damaged_inode};
use crate::context::Context;
use crate::open;
use crate::report::Report;

/// The most ranges of unreadable metadata that are printed.
const MAX_RANGES: usize = 8;

/// The volume to recover.
pub struct VolumeSearch<'a> {
    pub address: &'a Address,
    pub options: &'a Options,
    /// The device of an image with a map.
    pub bad: Option<Arc<BadRanges>>,
    pub context: &'a Context,
}

/// An image and the volume in it that is recovered.
pub struct ReadableVolume {
    pub image: Image,
    pub volume: Volume,
}

/// A copy in memory of an image whose volume is repaired.
pub struct RepairedCopy {
    pub copy: ReadableVolume,
    /// The number of errors that were found.
    pub errors: u64,
    /// The inodes that were damaged.
    pub inodes: BTreeSet<Ino>,
}

impl VolumeSearch<'_> {
    /// Opens the volume. If an image with a map does not open, the unreadable bytes of the reads that fail count as zeros
    /// while it is opened. If only the search for the type of the volume needs them, its driver opens the volume with the
    /// errors, and can read other copies of its structures.
    ///
    /// # Errors
    ///
    /// The image has no volume that opens.
    pub fn open(&self, image: Image) -> Result<ReadableVolume, Report> {
        let Some(bad) = &self.bad else {
            let volume = self.volume(&image)?;
            return Ok(ReadableVolume { image, volume });
        };
        let decode =
            |options: &Options| Image::on_device(image.path(), bad.clone(), image.registry(), options);
        let open = |image: Image| {
            let volume = self.volume(&image)?;
            Ok::<_, OpenError>(ReadableVolume { image, volume })
        };
        let (opened, unread) = bad.with_few_zeros(|| decode(self.options).and_then(open));
        let opened = opened.map_err(open::cannot_open)?;
        if unread.is_empty() {
            return Ok(opened);
        }
        let fs_type = Some(opened.volume.info().probe.fs_type.to_owned());
        let of_type = Options { fs_type, ..self.options.clone() };
        if let Ok(opened) = bad.with_zeros(|| decode(&of_type)).0.and_then(open)
            && opened.volume.vfs().expect_root().is_ok()
        {
            return Ok(opened);
        }
        self.note_zeros(&image, &unread, |ranges| {
            format!("metadata at bytes {ranges} was not read, and counts as zeros")
        });
        Ok(opened)
    }

    /// Prints the note `text` about the ranges `unread`, if there are any.
    fn note_zeros(&self, image: &Image, unread: &[Range<u64>], text: impl Fn(&str) -> String) {
        if unread.is_empty() {
            return;
        }
        let ranges = unread.iter().take(MAX_RANGES);
        let mut ranges: Vec<String> =
            ranges.map(|range| format!("{} to {}", range.start, range.end.saturating_sub(1))).collect();
        let more = unread.len().saturating_sub(MAX_RANGES) as u64;
        if more > 0 {
            ranges.push(Quantity::new(more, "more range").to_string());
        }
        self.context.note(image.path().as_os_str().as_bytes(), text(&ranges.join(", ")));
    }

    fn volume(&self, image: &Image) -> Result<Volume, OpenError> {
        image.volume_to_read(self.address.part.as_ref())
    }

    /// Returns `opened`, or a repaired copy if the path of the address cannot be found because the root is not a
    /// directory. If the copy cannot be repaired, returns `opened`, whose error is then the result.
    ///
    /// # Errors
    ///
    /// The copy cannot be opened.
    pub fn with_root(
        &self,
        opened: ReadableVolume,
        recovery: &mut Recovery<'_>,
    ) -> Result<ReadableVolume, Report> {
        let needs_root = !matches!(self.address.place, Some(FileSelector::Inode(_)));
        let Some(error) = opened.volume.vfs().expect_root().err().filter(|_| needs_root) else {
            return Ok(opened);
        };
        let Some(RepairedCopy { copy, inodes, .. }) = self.repaired(&opened.image)? else {
            return Ok(opened);
        };
        recovery.lose_root(error);
        self.report_lost_names(&opened.volume, &copy.volume, recovery);
        self.report_lost_inodes(&opened.volume, inodes, recovery);
        recovery.begin_repaired(copy.volume.clone());
        Ok(copy)
    }

    /// Returns the volume that was opened without its checksums, opened with them.
    pub fn verifier(&self, opened: &ReadableVolume) -> Option<Verifier> {
        let device: Arc<dyn BlockDevice> = match &self.bad {
            Some(bad) => bad.clone(),
            None => opened.image.device().clone(),
        };
        Verifier::open(&opened.image, &device, &opened.volume, self.options, self.address)
    }

    /// Reports the names that `volume` has lost below the directories that `repaired` has put into lost+found. The repair
    /// removes such names.
    pub fn report_lost_names(&self, volume: &Volume, repaired: &Volume, recovery: &mut Recovery<'_>) {
        let found = |volume: &Volume, path: &[u8]| {
            volume.resolve(&FileSelector::Path(path.to_vec()), Symlinks::Keep).ok()
        };
        let Some(directory) = found(repaired, b"/lost+found") else { return };
        for entry in Walk::new(directory).max_depth(1).flatten() {
            if entry.depth != 1 || entry.attr.kind != FileKind::Directory || entry.step == Step::Leave {
                continue;
            }
            let path = [b"/lost+found/", &entry.path[..]].concat();
            // A directory that was in lost+found before was copied with the tree.
            if found(volume, &path).is_some_and(|node| node.ino() == entry.node.ino()) {
                continue;
            }
            let Ok(start) = volume.vfs().node(entry.node.ino()) else { continue };
            for damage in Walk::new(start).filter_map(Result::err) {
                let path = [&shown(self.address)[..], b":", &join(&path, &damage.path)].concat();
                recovery.problem(&Problem { path, ..damage.into() });
            }
        }
    }

    /// Reports the inodes of `volume` among `inodes` that cannot be read, unless they are reported with a name.
    pub fn report_lost_inodes(&self, volume: &Volume, inodes: BTreeSet<Ino>, recovery: &mut Recovery<'_>) {
        for ino in inodes {
            match volume.vfs().node(ino) {
                Err(error) if damaged_inode(&error) == Some(ino) => {
                    let path = [&shown(self.address)[..], format!(":#{ino}").as_bytes()].concat();
                    recovery.lose_inode(ino, path, error);
                }
                _ => {}
            }
        }
    }

    /// Returns a copy of `image` in memory in which the volume is repaired, or `None` if the volume cannot be
    /// repaired. Unreadable bytes count as zeros during the repair only. Afterwards, the bytes that the repair has not
    /// written fail again.
    ///
    /// # Errors
    ///
    /// The copy cannot be opened.
    pub fn repaired(&self, image: &Image) -> Result<Option<RepairedCopy>, Report> {
        let bad = self.bad.as_ref().map(|bad| Arc::new(bad.copy()));
        let copy: Arc<dyn BlockDevice> = match &bad {
            Some(bad) => bad.clone(),
            None => Arc::new(Overlay::new(image.device().clone())),
        };
        let of_copy = Options { journal: None, ..self.options.clone() }.for_change();
        let checking = CheckOptions {
            repair_mode: RepairMode::All,
            rescue: true,
            journal: image.journal().cloned(),
            ..CheckOptions::new(Arc::new(SystemClock))
        };
        let repair = || {
            let copy = Image::on_device(image.path(), copy, image.registry(), &of_copy)?;
            let mut findings = Vec::<Finding>::new();
            let report = match check(&copy, self.address.part.as_ref(), &checking, &mut findings) {
                // A truncated volume is not repaired. Its files would be copied again.
                Ok(report) if report.repaired == 0 && report.left() > 0 => return Ok(None),
                Ok(report) => report,
                Err(_) => return Ok(None),
            };
            let volume = self.volume(&copy)?;
            let copy = ReadableVolume { image: copy, volume };
            let inodes = findings.iter().filter_map(|finding| finding.number("ino")).map(Ino).collect();
            Ok::<_, OpenError>(Some(RepairedCopy { copy, errors: report.found, inodes }))
        };
        let Some(bad) = bad else { return repair().map_err(open::cannot_open) };
        let (repaired, unread) = bad.with_zeros(repair);
        self.note_zeros(image, &unread, |ranges| {
            format!("bytes {ranges} were not read; the search for lost files counted them as zeros")
        });
        repaired.map_err(open::cannot_open)
    }
}

/// Returns the path of the entry at `below` in the directory `path`.
fn join(path: &[u8], below: &[u8]) -> Vec<u8> {
    match below {
        [] => path.to_vec(),
        _ => [path, b"/", below].concat(),
    }
}
