//! Deleted files are found with their bytes: a test for drivers that look for them.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use obento_base::{DeviceError, Error, FileKind, Ino, Name, Result};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{
    Access, Certainty, DeletedFile, Driver, FormatOptions, LayoutLock, OpenOptions, Undelete,
};
use obento_env::{FixedRandom, NO_CLOCK};

use crate::conformance::{file, make, writable};

/// A file in a directory is deleted, and another file beside it is not. Only the first is found, with its path, its
/// length and its bytes. Once another file has its space, it is found as overwritten.
pub fn a_deleted_file_is_found_with_its_bytes(driver: &dyn Driver, fs_type: &str) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(vec![0; 4 << 20]));
    let options = FormatOptions::new(fs_type, Arc::new(NO_CLOCK), Arc::new(FixedRandom(7)));
    driver.format().expect("it creates volumes").format(&*device, &options).unwrap();
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let fs = driver.open(device.clone(), &options).unwrap();
    let folder = make(&*fs, fs.root(), "A folder", FileKind::Directory);
    let fill = |name: &str, byte: u8, len: usize| {
        let ino = file(&*fs, folder, name);
        let (lock, bytes) = (LayoutLock::new(), vec![byte; len]);
        let mut done = 0;
        while done < len {
            match writable(&*fs).write(&lock.shared(), ino, done as u64, &bytes[done..]) {
                // The last file fills the volume.
                Err(Error::NoSpace) => break,
                written => done += written.unwrap(),
            }
        }
        ino
    };
    let (lost, _kept) = (fill("A deleted picture.jpeg", b'd', 9000), fill("kept", b'k', 5000));
    writable(&*fs).sync().unwrap();
    writable(&*fs).unlink(folder, Name::new(b"A deleted picture.jpeg").unwrap()).unwrap();
    fs.forget(lost);
    writable(&*fs).sync().unwrap();

    let found = deleted(driver, &device);
    assert_eq!(found.len(), 1, "{found:?}");
    let (path, size, certainty, bytes) = &found[0];
    assert_eq!((path.as_str(), *size), ("A folder/A deleted picture.jpeg", 9000));
    assert!(*certainty >= Certainty::Likely, "{certainty:?}");
    assert!(bytes.len() >= 9000 && bytes[..9000].iter().all(|&byte| byte == b'd'));

    fill("fills the volume", b'f', 4 << 20);
    writable(&*fs).close().unwrap();
    let found = deleted(driver, &device);
    assert!(found.iter().all(|(.., certainty, _)| *certainty == Certainty::Overwritten), "{found:?}");
}

/// A device with a range that cannot be read.
struct PartlyUnreadable {
    below: Arc<dyn BlockDevice>,
    unreadable: Range<u64>,
}

impl BlockDevice for PartlyUnreadable {
    fn len(&self) -> u64 {
        self.below.len()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        if offset < self.unreadable.end && self.unreadable.start < offset + len {
            return Err(DeviceError::Read { offset, len, errno: 5 }.into());
        }
        self.below.read_at(offset, buf)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(DeviceError::ReadOnly.into())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Deleted files are found behind an unreadable sector of their directory, and the directory is reported.
pub fn an_unreadable_sector_does_not_end_a_directory(driver: &dyn Driver, fs_type: &str) {
    const COUNT: usize = 60;
    const SECTOR: usize = 512;
    let device = Arc::new(MemDevice::new(vec![0; 4 << 20]));
    let options = FormatOptions::new(fs_type, Arc::new(NO_CLOCK), Arc::new(FixedRandom(7)));
    driver.format().expect("it creates volumes").format(&*device, &options).unwrap();
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let fs = driver.open(device.clone(), &options).unwrap();
    let folder = make(&*fs, fs.root(), "A folder", FileKind::Directory);
    let names: Vec<String> = (0..COUNT).map(|number| format!("mark of file {number:03}")).collect();
    let files: Vec<Ino> = names.iter().map(|name| file(&*fs, folder, name)).collect();
    for (name, ino) in names.iter().zip(files) {
        writable(&*fs).unlink(folder, Name::new(name.as_bytes()).unwrap()).unwrap();
        fs.forget(ino);
    }
    writable(&*fs).close().unwrap();
    let mut bytes = vec![0; 4 << 20];
    device.read_at(0, &mut bytes).unwrap();
    let has_names = |sector: &[u8]| sector.windows(8).any(|part| part == b"m\0a\0r\0k\0");
    let sectors = bytes.chunks(SECTOR).enumerate().filter(|(_, sector)| has_names(sector));
    let sectors: Vec<usize> = sectors.map(|(at, _)| at).collect();
    assert!(sectors.len() > 3, "{sectors:?}");
    let search = driver.undelete().expect("it looks for deleted files");
    for at in sectors {
        let start = (at * SECTOR) as u64;
        let device: Arc<dyn BlockDevice> =
            Arc::new(PartlyUnreadable { below: device.clone(), unreadable: start..start + SECTOR as u64 });
        let mut found = 0;
        let unsearched = search.deleted(&device, &mut |_| {
            found += 1;
            ControlFlow::Continue(())
        });
        assert!(found >= COUNT - SECTOR / 32, "sector {at}: {found} of {COUNT}");
        let unsearched = unsearched.unwrap();
        assert_eq!(unsearched.len(), 1, "{unsearched:?}");
        assert_eq!(unsearched[0].directory, b"A folder");
    }
}

/// Returns the path, length, certainty and bytes of each deleted file.
fn deleted(driver: &dyn Driver, device: &Arc<dyn BlockDevice>) -> Vec<(String, u64, Certainty, Vec<u8>)> {
    let found = deleted_files(driver.undelete().expect("it looks for deleted files"), device);
    let with_bytes = |file: DeletedFile| {
        let mut bytes = Vec::new();
        for extent in &file.extents {
            let mut part = vec![0; usize::try_from(extent.end - extent.start).unwrap()];
            device.read_at(extent.start, &mut part).unwrap();
            bytes.extend(part);
        }
        (String::from_utf8(file.path).unwrap(), file.size, file.certainty, bytes)
    };
    found.into_iter().map(with_bytes).collect()
}

/// Returns the deleted files on `device`, in the order in which `search` finds them.
pub fn deleted_files(search: &dyn Undelete, device: &Arc<dyn BlockDevice>) -> Vec<DeletedFile> {
    let mut found = Vec::new();
    let mut add = |file| {
        found.push(file);
        ControlFlow::Continue(())
    };
    search.deleted(device, &mut add).unwrap();
    found
}
