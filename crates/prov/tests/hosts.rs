//! What programs see of recorded volumes: the results are those of the volumes without a log.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_driver::{Access, Driver, OpenOptions};
use obento_env::SystemClock;
use obento_exfat::ExFatDriver;
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_prov::{FixedWho, LogOptions, Recorded};
use obento_testkit::hosts::{Library, expect_all};
use obento_testkit::oracle::call;

/// Runs all cases on the volume of an image.
fn expect_all_on(driver: impl Driver + 'static, image: PathBuf) {
    let mut library = Library::new(move |access| {
        let options = OpenOptions { access, ..OpenOptions::new(Arc::new(SystemClock)) };
        let device = match access {
            Access::ReadOnly => FileDevice::open(&image),
            Access::ReadWrite => FileDevice::open_writable(&image),
        };
        let inner = driver.open(Arc::new(device.unwrap()), &options)?;
        let who = Arc::new(FixedWho(common::actor(7)));
        Recorded::open(inner, who, Arc::new(SystemClock), LogOptions::default()).map(|fs| fs as _)
    });
    expect_all(&mut library);
    library.close();
}

fn image(make: fn(&Path) -> bool) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    make(&image).then_some((folder, image))
}

#[test]
fn programs_get_the_expected_results_on_a_recorded_tmpfs_volume() {
    let inner = common::tmpfs(256 << 20);
    let who = Arc::new(FixedWho(common::actor(7)));
    let fs = Recorded::open(inner, who, Arc::new(SystemClock), LogOptions::default()).unwrap();
    expect_all(&mut Library::in_memory(fs));
}

#[test]
fn programs_get_the_expected_results_on_a_recorded_ext4_volume() {
    let Some((_folder, image)) = image(|path| common::make_ext4_with(path, 256 << 20, 20_000)) else {
        return;
    };
    expect_all_on(Ext4Driver, image.clone());
    call("e2fsck", ["-fn".as_ref(), image.as_os_str()]).unwrap();
}

#[test]
fn programs_get_the_expected_results_on_a_recorded_exfat_volume() {
    let Some((_folder, image)) = image(common::make_exfat) else { return };
    expect_all_on(ExFatDriver::default(), image.clone());
    call("fsck.exfat", ["-n".as_ref(), image.as_os_str()]).unwrap();
}
