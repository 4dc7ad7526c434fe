//! The conformance cases for volumes that are read.

use std::path::{Path, PathBuf};

use crate::recipe::Recipe;
use obento_base::Timestamp;
use obento_bcachefs::BcachefsDriver;
use obento_testkit::trials::format::Format;

fn write(name: &str, folder: &Path) -> Option<PathBuf> {
    let is_big_endian = name == "big";
    let image = folder.join(name);
    std::fs::write(&image, Recipe { is_big_endian, is_dirty: name == "dirty", ..Recipe::default() }.write())
        .ok()?;
    Some(image)
}

/// Volumes of our own writer: no program makes any.
static FORMAT: Format = Format {
    driver: || Box::new(BcachefsDriver),
    make: |_, _| None,
    fill: write,
    judge: "",
    repair: "",
    now: Timestamp::new(1_700_000_000, 0),
};

mod little {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("little"));
}

mod big {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("big"));
}

mod dirty {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("dirty"));
}

#[test]
fn an_open_volume_passes_to_another_process() {
    for bytes in ["little", "big", "dirty"].into_iter().filter_map(|shape| FORMAT.filled(shape)) {
        obento_testkit::trials::handover::passes_on_reading(&BcachefsDriver, &bytes);
    }
}
