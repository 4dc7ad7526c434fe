//! The conformance cases for volumes that are read.

mod common;

use common::open;
use common::recipe::{End, Recipe, Width};

fn volume(width: Width, is_big_endian: bool, end: End) -> std::sync::Arc<dyn obento_driver::FileSystem> {
    open(Recipe { width, is_big_endian, end }.write()).expect("a sound volume")
}

mod first_version {
    use super::*;
    obento_testkit::reading_conformance!(Some(volume(Width::One, false, End::Clean)));
}

mod second_version_after_a_crash {
    use super::*;
    obento_testkit::reading_conformance!(Some(volume(Width::Two, false, End::Crash)));
}

mod wide_and_big_endian {
    use super::*;
    obento_testkit::reading_conformance!(Some(volume(Width::Wide, true, End::Clean)));
}

#[test]
fn an_open_volume_passes_to_another_process() {
    for recipe in common::recipes() {
        obento_testkit::trials::handover::passes_on_reading(&obento_lfs::LfsDriver, &recipe.write());
    }
}
