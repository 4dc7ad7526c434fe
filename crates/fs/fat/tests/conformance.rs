//! The contract's cases: on volumes that mtools filled, and on empty ones that are open for changes, which `fsck.fat` judges
//! when a case is done. Of the latter those are left out that ask for what the format lacks: links, owners, modes, symbolic
//! links, device nodes, holes, names of any bytes.

mod common;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use obento_block::MemDevice;
use obento_driver::FileSystem;

fn filled(name: &'static str) -> Option<Arc<dyn FileSystem>> {
    if !common::oracles() {
        return None;
    }
    let device = MemDevice::read_only(common::filled_bytes(name).to_vec());
    Some(common::open(Arc::new(device)).expect("the volume opens"))
}

mod fat12 {
    obento_testkit::reading_conformance!(super::filled("fat12"));
}

mod fat16 {
    obento_testkit::reading_conformance!(super::filled("fat16"));
}

mod fat32 {
    obento_testkit::reading_conformance!(super::filled("fat32"));
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

mod writing_fat12 {
    writing!("fat12");
}

mod writing_fat16 {
    writing!("fat16");
}

mod writing_fat32 {
    writing!("fat32");
}
