//! The conformance cases on volumes that are open for changes, with the features that use other code paths of the
//! driver. After each case the volume is closed, opened and closed again, and checked with `e2fsck`.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use obento_base::Timestamp;
use obento_driver::{Access, DataMode, Driver as _, FileSystem, Journalling, OpenOptions};
use obento_env::FixedClock;
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_testkit::oracle::{Oracle, call};
use obento_testkit::require;
use obento_testkit::trials::{Judged, close};

const LEN: u64 = 32 << 20;

fn empty(arguments: &[&str], mode: DataMode) -> Option<Judged> {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    File::create(&image).and_then(|file| file.set_len(LEN)).expect("room");
    let arguments = ["-q", "-F", "-N", "500"].iter().chain(arguments).map(|argument| (*argument).into());
    call("mke2fs", arguments.chain([image.clone().into_os_string()])).expect("the features are compatible");
    let fs = open(&image, mode);
    let judge = move || {
        // Again, so that orphans of the case are freed as after a crash.
        close(&*open(&image, DataMode::Ordered));
        call("e2fsck", ["-fn".as_ref(), image.as_os_str()]).expect("a sound volume");
        drop(folder);
    };
    Some(Judged::new(fs, judge))
}

fn open(image: &Path, mode: DataMode) -> Arc<dyn FileSystem> {
    let options = OpenOptions {
        access: Access::ReadWrite,
        journalling: Journalling { mode, ..Journalling::default() },
        ..OpenOptions::new(Arc::new(FixedClock(Timestamp::new(1_700_000_000, 1))))
    };
    let device = FileDevice::open_writable(image).expect("the image");
    Ext4Driver.open(Arc::new(device), &options).expect("the features are supported")
}

macro_rules! conformance {
    ($($name:ident: $mode:ident $($argument:literal)*;)*) => {
        $(mod $name {
            use obento_driver::DataMode;
            obento_testkit::writing_conformance!(super::empty(&[$($argument),*], DataMode::$mode));
        })*
    };
}

conformance! {
    ext4: Ordered "-t" "ext4" "-b" "4096";
    ext4_1k: Ordered "-t" "ext4" "-b" "1024";
    data_journal: Journal "-t" "ext4" "-b" "2048";
    ext2: Ordered "-t" "ext2" "-b" "1024" "-I" "128";
    ext3: Ordered "-t" "ext3" "-b" "4096";
    inline_data: Ordered "-t" "ext4" "-b" "4096" "-O" "inline_data,orphan_file";
    clusters: Ordered "-t" "ext4" "-b" "1024" "-O" "bigalloc,ea_inode,quota" "-C" "8192";
    projects: Ordered "-t" "ext4" "-b" "4096" "-O" "project,quota";
    crc16: Writeback "-t" "ext4" "-b" "4096" "-O" "^metadata_csum,uninit_bg,^flex_bg,large_dir";
}
