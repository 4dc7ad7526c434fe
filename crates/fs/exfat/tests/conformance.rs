//! The contract's cases: on volumes with a tree in them, and on empty ones that are open for changes, which `fsck.exfat` judges
//! when a case is done. Of the latter those are left out that ask for what the format lacks: links, owners, modes, symbolic
//! links, device nodes, holes, names of any bytes.

mod common;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use obento_driver::FileSystem;

fn filled(name: &'static str) -> Option<Arc<dyn FileSystem>> {
    static MADE: Mutex<BTreeMap<&str, Arc<Vec<u8>>>> = Mutex::new(BTreeMap::new());
    if !common::oracles() {
        return None;
    }
    let make = || {
        let folder = tempfile::tempdir().expect("a folder");
        Arc::new(common::bytes_of(&common::shape(name).filled(folder.path())))
    };
    let bytes =
        MADE.lock().expect("no other test broke off in here").entry(name).or_insert_with(make).clone();
    Some(common::open_bytes(&bytes).expect("the volume opens"))
}

mod sector {
    obento_testkit::reading_conformance!(super::filled("sector"));
}

mod pages {
    obento_testkit::reading_conformance!(super::filled("pages"));
}

/// A volume that is judged when it goes.
struct Judged {
    fs: Arc<dyn FileSystem>,
    image: PathBuf,
    _folder: tempfile::TempDir,
}

impl Deref for Judged {
    type Target = dyn FileSystem;
    fn deref(&self) -> &Self::Target {
        &*self.fs
    }
}

impl Drop for Judged {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if let Some(writable) = self.fs.writable() {
            writable.close().expect("a sound device");
        }
        common::judge(&self.image);
    }
}

fn empty(name: &str) -> Option<Judged> {
    if !common::oracles() {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let image = common::shape(name).make(folder.path());
    Some(Judged { fs: common::open_to_write(&image), image, _folder: folder })
}

macro_rules! writing {
    ($shape:literal) => {
        obento_testkit::conformance_tests! { super::empty($shape), names:
            create_tests_its_errors_in_order
            link_tests_its_errors_in_order
            a_file_has_at_most_as_many_names_as_the_format_holds
            unlink_tests_its_errors_in_order
            rmdir_removes_an_empty_directory_in_which_nothing_can_be_created_then
            rmdir_tests_its_errors_in_order
            forget_frees_what_has_no_name_and_nothing_else
        }
        obento_testkit::conformance_tests! { super::empty($shape), renames:
            rename_moves_a_name_within_and_between_directories
            rename_without_replacing_is_exists_if_anything_stands_there
            both_flags_at_once_are_invalid
            rename_tests_its_errors_in_order
        }
        obento_testkit::conformance_tests! { super::empty($shape), data:
            what_was_written_is_read_and_moves_the_size
            abandon_gives_back_what_nobody_wrote
            truncate_drops_what_lies_past_the_size
            a_size_past_the_largest_is_file_too_big
        }
        obento_testkit::conformance_tests! { super::empty($shape), space:
            a_full_volume_answers_no_space_and_takes_again_what_was_freed
            sync_succeeds_on_a_sound_device
        }
    };
}

mod writing_sector {
    writing!("sector");
}

mod writing_page {
    writing!("page");
}

mod writing_pages {
    writing!("pages");
}
