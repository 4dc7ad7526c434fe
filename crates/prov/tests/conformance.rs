//! The conformance cases on recorded volumes: the results are those of the volumes without a log.

mod common;

use std::sync::Arc;

use obento_driver::FileSystem;
use obento_prov::LogOptions;
use obento_testkit::oracle::call;
use obento_testkit::trials::{Judged, close};

fn in_memory() -> Option<Arc<dyn FileSystem>> {
    Some(common::recorded(common::tmpfs(32 << 20), LogOptions::default()))
}

fn on_ext4() -> Option<Judged> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if !common::make_ext4(&image) {
        return None;
    }
    let fs = common::recorded(common::open_ext4(&image), LogOptions::default());
    let judge = move || {
        // Again, so that orphans of the case are freed as after a crash.
        close(&*common::open_ext4(&image));
        call("e2fsck", ["-fn".as_ref(), image.as_os_str()]).unwrap();
        drop(folder);
    };
    Some(Judged::new(fs, judge))
}

fn on_exfat() -> Option<Judged> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if !common::make_exfat(&image) {
        return None;
    }
    let fs = common::recorded(common::open_exfat(&image), LogOptions::default());
    let judge = move || {
        call("fsck.exfat", ["-n".as_ref(), image.as_os_str()]).unwrap();
        drop(folder);
    };
    Some(Judged::new(fs, judge))
}

mod tmpfs {
    obento_testkit::writing_conformance!(super::in_memory());
}

mod ext4 {
    obento_testkit::writing_conformance!(super::on_ext4());
}

mod exfat {
    obento_testkit::writing_conformance!(super::on_exfat());
}
