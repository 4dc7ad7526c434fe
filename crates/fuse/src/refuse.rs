//! A mount whose server has failed for good: every request fails with EIO, until the mount ends.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};

use crate::receive::attempt;
use crate::wire::{LONGEST_REQUEST, Refusal};

/// Answers all requests at `device`, an open `/dev/fuse`, with EIO until the file system is unmounted. This includes
/// the requests that the failed server has read.
///
/// # Errors
///
/// The errors of the device.
pub fn refuse_all(device: OwnedFd) -> std::io::Result<()> {
    rustix::io::ioctl_fionbio(&device, true)?;
    let device = Arc::new(device);
    let refusal = Refusal::new(&device);
    let mut buffer = vec![0; LONGEST_REQUEST];
    loop {
        match attempt(&device, &mut buffer) {
            Some(received) => match received? {
                Some(len) => refusal.refuse(buffer.get(..len).unwrap_or_default()),
                None => return Ok(()),
            },
            None => {
                let mut waiting = [PollFd::new(&*device, PollFlags::IN)];
                match poll(&mut waiting, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}
