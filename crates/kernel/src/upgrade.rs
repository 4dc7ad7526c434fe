//! Passing a mounted volume to the same driver in another module, such as a new version.
//!
//! `c/upgrade.c` describes the steps. No other call is in either driver, except for `ob_prepare`. Both modules exchange
//! bytes only (`obento_driver::VolumeState`).
//!
//! Invariant: the new driver writes only to memory until `ob_release`. If the old driver writes after
//! `ob_leave`, `ob_depart` fails. Therefore, the old driver can continue until the first write of
//! `ob_release`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::sync::atomic::Ordering;

use obento_base::fields::StateError;
use obento_base::{Error, Ino, Result};
use obento_block::Handoff;
use obento_driver::{HandoverState, VolumeState};
use obento_prov::{OpenFile, OpenRecorder as _};

use crate::abi::{Bytes, MountOptions, Numbers, Status, Take, lend};
use crate::device::KernelDevice;
use crate::report::print;
use crate::volume::{self, Volume};

/// Returns the versions of the state that this driver reads. It writes the last one.
#[unsafe(no_mangle)]
pub extern "C" fn ob_states(first: &mut u32, last: &mut u32) {
    let (major, _) = VolumeState::VERSION;
    (*first, *last) = (major.into(), major.into());
}

/// Writes all changes to their places, so that little is left for `ob_leave`. Other calls may be in progress.
#[unsafe(no_mangle)]
pub extern "C" fn ob_prepare(volume: &Volume) -> Status {
    volume.status(volume.prepare().map(drop))
}

/// Writes all changes to their places, and passes the rest of the state to `take`. `used` are the inodes in use.
///
/// # Safety
///
/// `used` are numbers of this call, and `take` may be called with `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_leave(volume: &Volume, used: Numbers, take: Take, data: *mut c_void) -> Status {
    // SAFETY: the promise of the caller.
    let used = unsafe { used.get() };
    match volume.leave(used) {
        // SAFETY: the promise of the caller; the bytes live until the end of the call.
        Ok(state) => unsafe { take(data, lend(&state)) },
        Err(error) => volume.status(Err(error)),
    }
}

/// Opens the volume that another driver has left, with its state. Writes nothing to the device.
///
/// # Safety
///
/// `bdev` and `sb` live until `ob_free_volume`, `state` are bytes of this call, and `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_resume(
    bdev: *mut c_void,
    sb: *mut c_void,
    len: u64,
    options: &MountOptions,
    state: Bytes,
    out: *mut *mut Volume,
) -> Status {
    // SAFETY: the promise of the caller.
    let state = unsafe { state.get() };
    let resumed = match VolumeState::decode(state) {
        Ok(state) => resume(KernelDevice::new(bdev, len, options.is_read_only()), sb, options, state),
        Err(error) => Err(refuse(&error)),
    };
    match resumed {
        Ok(volume) => {
            // SAFETY: the promise of the caller.
            unsafe { out.write(Box::into_raw(volume)) };
            0
        }
        Err(error) => {
            print(format_args!("cannot take over the volume: {error}"));
            error.errno().0.saturating_neg()
        }
    }
}

#[inline(never)]
fn refuse(error: &StateError) -> Error {
    print(format_args!("{error}"));
    if *error == StateError::NoMemory { Error::NoMemory } else { Error::Invalid }
}

#[inline(never)]
fn resume(
    device: KernelDevice,
    sb: *mut c_void,
    options: &MountOptions,
    state: VolumeState,
) -> Result<Box<Volume>> {
    let VolumeState { driver, volume: id, handover, records } = state;
    if driver.as_bytes() != volume::kind(options)?.name.to_bytes() {
        return Err(Error::Invalid);
    }
    let device = Arc::new(device);
    let handoff = Arc::new(Handoff::holding(Arc::clone(&device) as Arc<_>));
    let volume = volume::open(device, Some(handoff), sb, options, Some(Arc::new(handover)))?;
    if volume.id() != id {
        return Err(Error::Stale);
    }
    if let Some(recorded) = &volume.recorded {
        let mut files = Vec::new();
        files.try_reserve_exact(records.len())?;
        for record in records {
            files.push(OpenFile::from_numbers(record).ok_or(Error::Invalid)?);
        }
        recorded.adopt_open_files(files);
    }
    Ok(volume)
}

/// Writes the changes that the new driver has stored in memory since `ob_resume`. Afterwards, this driver
/// writes directly to the device.
///
/// # Errors
///
/// The error number is positive if some changes may have been written, which the old driver does not know. It
/// is negative if nothing was written.
#[unsafe(no_mangle)]
pub extern "C" fn ob_release(volume: &Volume) -> Status {
    let status = volume.status(volume.handoff.as_ref().map_or(Ok(()), |handoff| handoff.release()));
    // A write that failed may have written some of its sectors.
    if volume.device.changes() == 0 { status } else { status.saturating_neg() }
}

/// Makes all later writes of the old driver fail. Fails with `EBUSY` if the driver has written since
/// `ob_leave`.
#[unsafe(no_mangle)]
pub extern "C" fn ob_depart(volume: &Volume) -> Status {
    volume.device.set_left(true);
    if volume.device.changes() == volume.changes_when_left.load(Ordering::Relaxed) {
        return 0;
    }
    volume.device.set_left(false);
    volume.status(Err(Error::Busy))
}

/// Lets the driver write again after `ob_depart`.
#[unsafe(no_mangle)]
pub extern "C" fn ob_stay(volume: &Volume) {
    volume.device.set_left(false);
}

impl Volume {
    fn prepare(&self) -> Result<Vec<u8>> {
        self.fs.handover().ok_or(Error::NotSupported)?.prepare()
    }

    #[inline(never)]
    fn leave(&self, used: &[u64]) -> Result<Vec<u8>> {
        let mut inodes = Vec::new();
        inodes.try_reserve_exact(used.len())?;
        inodes.extend(used.iter().map(|&ino| Ino(ino)));
        inodes.sort_unstable();
        let state = self.prepare()?;
        self.changes_when_left.store(self.device.changes(), Ordering::Relaxed);
        let files = self.recorded.as_ref().map(|recorded| recorded.open_files()).unwrap_or_default();
        let mut records = Vec::new();
        records.try_reserve_exact(files.len())?;
        records.extend(files.iter().map(OpenFile::to_numbers));
        let driver = String::from_utf8_lossy(self.type_name.to_bytes()).into_owned();
        let handover = HandoverState { inodes, state };
        VolumeState { driver, volume: self.id(), handover, records }.encode()
    }
}
