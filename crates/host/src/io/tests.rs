//! One suite for all back ends, which compares a device with a vector of bytes.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use obento_base::{DeviceError, Error};
use obento_block::{BlockDevice, ReadRequest};
use obento_testkit::oracle::call;
use obento_testkit::{Oracle, require};

use super::*;

/// Lengths that are whole grains, whole sectors, neither, and less than one sector.
const LENGTHS: [usize; 5] = [1 << 20, (1 << 20) + 512, (3 << 20) + 4097, 4096, 100];

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

/// Opens with `backend`, if this kernel and file system support it.
fn device(path: &Path, purpose: Purpose, backend: IoBackend) -> Option<Arc<dyn BlockDevice>> {
    match open(path, Some(purpose), backend) {
        Ok(opened) => Some(opened.device),
        Err(error @ HostError::NoBackend { .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    /// Returns a range within `len` bytes: small, aligned, up to the end, or large.
    fn range(&mut self, len: usize) -> Range<usize> {
        let start = self.below(len + 1);
        match self.below(4) {
            0 => start..(start + self.below(700)).min(len),
            1 => {
                let start = start / 4096 * 4096;
                start..(start + 4096 * (1 + self.below(8))).min(len)
            }
            2 => len - (len - start).min(self.below(9000))..len,
            _ => start..start + self.below(len - start + 1),
        }
    }
}

fn check_model(backend: IoBackend, len: usize, seed: u64) {
    let mut random = Random(seed);
    let mut model: Vec<u8> = (0..len).map(|at| (at * 31 % 251) as u8).collect();
    let file = file(&model);
    let Some(device) = device(file.path(), Purpose::Change, backend) else { return };
    assert_eq!((device.len(), device.is_read_only()), (len as u64, false));
    for step in 0..300 {
        let range = random.range(len);
        let place = format!("{backend}, {len} bytes, seed {seed}, step {step}, {range:?}");
        match random.below(8) {
            0..3 => {
                let bytes: Vec<u8> = (0..range.len()).map(|_| random.below(256) as u8).collect();
                device.write_at(range.start as u64, &bytes).expect(&place);
                model[range].copy_from_slice(&bytes);
            }
            3 => {
                device.discard(range.start as u64..range.end as u64).expect(&place);
                // The contents are unspecified now. Writing them makes them defined again.
                device.write_at(range.start as u64, &model[range]).expect(&place);
            }
            4 => device.flush().expect(&place),
            5 => {
                let others = [random.range(len), random.range(len), range];
                let mut buffers = others.clone().map(|range| vec![0xee; range.len()]);
                let requests = others.iter().zip(&mut buffers);
                let mut requests: Vec<_> =
                    requests.map(|(range, buf)| ReadRequest { offset: range.start as u64, buf }).collect();
                device.read_many(&mut requests).expect(&place);
                for (range, buf) in others.into_iter().zip(&buffers) {
                    assert!(*buf == model[range], "{place}");
                }
            }
            _ => {
                let mut buf = vec![0xee; range.len()];
                device.read_at(range.start as u64, &mut buf).expect(&place);
                assert!(buf == model[range], "{place}");
            }
        }
    }
    drop(device);
    assert!(std::fs::read(file.path()).unwrap() == model, "{backend}, {len} bytes, seed {seed}: the file");
}

#[test]
fn every_back_end_reads_and_writes_as_a_vector_of_bytes_would() {
    for backend in IoBackend::ALL {
        for (seed, len) in (1..).zip(LENGTHS) {
            check_model(backend, len, seed);
        }
    }
}

#[test]
fn every_back_end_refuses_ranges_out_of_bounds_and_writes_to_a_read_only_file() {
    let file = file(&[7; 5000]);
    for backend in IoBackend::ALL {
        let Some(reading) = device(file.path(), Purpose::Read, backend) else { continue };
        let out = |offset, len| Err(DeviceError::OutOfBounds { offset, len, device_len: 5000 }.into());
        assert_eq!(reading.read_at(4999, &mut [0; 2]), out(4999, 2), "{backend}");
        assert_eq!(reading.read_at(u64::MAX, &mut [0; 2]), out(u64::MAX, 2), "{backend}");
        let read_only: Result<(), Error> = Err(DeviceError::ReadOnly.into());
        assert_eq!(reading.write_at(0, &[1]), read_only, "{backend}");
        assert_eq!(reading.discard(0..10), read_only, "{backend}");
        assert_eq!(reading.flush(), Ok(()), "{backend}");
        drop(reading);
        let writing = device(file.path(), Purpose::Change, backend).unwrap();
        assert_eq!(writing.write_at(5000, &[1]), out(5000, 1), "{backend}");
        assert_eq!(writing.write_at(4998, &[1; 2]), Ok(()), "{backend}");
        assert_eq!(writing.read_at(5000, &mut []), Ok(()), "{backend}");
    }
}

#[test]
fn neighbours_that_are_written_by_several_threads_do_not_undo_each_other() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
    for backend in IoBackend::ALL {
        let file = file(&vec![0; 64 << 10]);
        let Some(device) = device(file.path(), Purpose::Change, backend) else { continue };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let device = &device;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let offset = (round * THREADS + thread) * 37;
                        device.write_at(offset as u64, &[thread as u8 + 1; 37]).unwrap();
                    }
                });
            }
        });
        let mut bytes = vec![0; THREADS * ROUNDS * 37];
        device.read_at(0, &mut bytes).unwrap();
        let expected = (0..bytes.len()).map(|at| (at / 37 % THREADS) as u8 + 1);
        assert!(bytes.iter().copied().eq(expected), "{backend}");
    }
}

#[test]
fn a_file_that_shrinks_is_an_error_for_every_back_end_and_no_signal() {
    for backend in IoBackend::ALL {
        let file = file(&[7; 1 << 16]);
        let Some(device) = device(file.path(), Purpose::Read, backend) else { continue };
        let mut buf = [0; 8192];
        device.read_at(0, &mut buf).unwrap();
        file.as_file().set_len(4096).unwrap();
        let error = device.read_at(8192, &mut buf).unwrap_err();
        assert!(matches!(error, Error::Device(DeviceError::OutOfBounds { .. })), "{backend}: {error}");
        // A short read of the kernel is an error here.
        let error = device.read_at(2048, &mut buf).unwrap_err();
        assert!(matches!(error, Error::Device(DeviceError::OutOfBounds { .. })), "{backend}: {error}");
        let mut buf = [0; 4096];
        device.read_at(0, &mut buf).unwrap();
        assert_eq!(buf, [7; 4096], "{backend}: what is left can be read");
    }
}

#[test]
fn kernels_copy_only_from_what_is_in_the_page_cache() {
    let file = file(&[7; 8192]);
    for backend in IoBackend::ALL {
        let Some(device) = device(file.path(), Purpose::Read, backend) else { continue };
        assert_eq!(device.backing(0..4096).is_some(), backend != IoBackend::Direct, "{backend}");
    }
}

/// A file system in memory with limited space, which requires root.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(room: u64) -> Self {
        let (folder, size) = (tempfile::tempdir().unwrap(), format!("size={room}"));
        let words = ["-t", "tmpfs", "-o", &size, "none"].map(AsRef::as_ref);
        call("mount", words.into_iter().chain([folder.path().as_os_str()])).unwrap();
        Self(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = call("umount", [self.0.path()]);
    }
}

#[test]
fn a_write_that_finds_room_for_its_first_part_alone_is_an_error_and_the_next_that_has_room_succeeds() {
    const ROOM: u64 = 64 << 10;
    if !require(&[Oracle::Root]) {
        return;
    }
    let disk = SmallDisk::new(ROOM);
    for backend in IoBackend::ALL {
        let path = disk.0.path().join("image");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(4 * ROOM).unwrap();
        if let Some(device) = device(&path, Purpose::Change, backend) {
            let error = device.write_at(0, &vec![7; 2 * ROOM as usize]).unwrap_err();
            let full = matches!(error, Error::Device(DeviceError::Write { errno: libc::ENOSPC, .. }));
            assert!(full, "{backend}: {error}");
            // The bytes of the failed write are unspecified. The truncation frees space.
            file.set_len(ROOM - 4096).unwrap();
            file.set_len(4 * ROOM).unwrap();
            assert_eq!(device.write_at(0, &[8; 4096]), Ok(()), "{backend}");
            assert_eq!(device.write_at(2 * ROOM, &[9; 4096]), Ok(()), "{backend}");
            let mut buf = [0; 4096];
            for (offset, byte) in [(0, 8), (2 * ROOM, 9)] {
                device.read_at(offset, &mut buf).unwrap();
                assert_eq!(buf, [byte; 4096], "{backend}");
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}
