//! Deleted files are found with their bytes: a test for drivers that look for them.

use std::ops::ControlFlow;
use std::sync::Arc;

use obento_base::{Error, FileKind, Name};
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
