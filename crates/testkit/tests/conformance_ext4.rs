//! The contract's reading cases on ext2 and ext4 volumes, created by e2fsprogs and filled by the kernel. The volumes
//! have all combinations of features that change how names, data and attributes are stored.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use obento_driver::FileSystem;
use obento_testkit::tree::TreeSpec;
use obento_testkit::{Oracle, matrix, require};

/// Each image is opened once, because no case changes it.
static IMAGES: LazyLock<Mutex<HashMap<&'static str, Arc<dyn FileSystem>>>> = LazyLock::new(Mutex::default);

/// Returns the image with this name in the matrix; `None` without the programs that create it.
fn image(name: &'static str) -> Option<Arc<dyn FileSystem>> {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs"), Oracle::LoopMount, Oracle::Root]) {
        return None;
    }
    let mut images = IMAGES.lock().unwrap();
    Some(Arc::clone(images.entry(name).or_insert_with(|| build(name))))
}

fn build(name: &str) -> Arc<dyn FileSystem> {
    let spec = matrix::ext4(TreeSpec::SMALL).into_iter().find(|spec| spec.name == name);
    // The file is removed with the folder; the open image keeps its bytes.
    let folder = tempfile::tempdir().unwrap();
    let path = spec.expect("an image of the matrix").build(folder.path()).unwrap();
    let image = obento::Image::open(&path).unwrap();
    Arc::clone(image.volume(None).unwrap().vfs().flushed_file_system())
}

macro_rules! on_images {
    ($($module:ident: $name:literal)*) => {
        $(mod $module {
            obento_testkit::reading_conformance!(super::image($name));
        })*
    };
}

on_images! {
    ext4: "ext4"
    ext2_1k: "ext2-1k"
    uninit_bg_32bit: "uninit-bg-32bit"
    meta_bg_1k: "meta-bg-1k"
    bigalloc: "bigalloc"
    inline_data: "inline-data"
    ea_inode_inline: "ea-inode-inline"
    no_dir_index: "no-dir-index"
    large_dir_1k: "large-dir-1k"
    casefold: "casefold"
    encrypt_verity: "encrypt-verity"
}
