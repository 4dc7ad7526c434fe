//! A JFFS2 image from a directory of the host: compressed data comes from the sources while the image is planned.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, symlink};

use obento::build::{BuildFailure, BuildSettings, BuildSource, Owner, build, build_verified};
use obento::copy::Quiet;
use obento::{Image, Registry};

#[test]
fn an_image_of_a_directory_equals_it_and_is_built_again_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    let text: Vec<u8> = (0..200_000_u32).map(|n| (n / 100 % 50) as u8).collect();
    fs::write(tree.join("a/text"), &text).unwrap();
    fs::write(tree.join("a/b/empty"), b"").unwrap();
    fs::hard_link(tree.join("a/text"), tree.join("again")).unwrap();
    symlink("a/text", tree.join("link")).unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 1 << 20).unwrap();
    let (one, other) = (folder.path().join("one.jffs2"), folder.path().join("other.jffs2"));
    let (registry, sources) = (Registry::default(), [BuildSource::Directory(tree)]);
    let settings = |words: &[(&str, &str)]| BuildSettings {
        settings: words.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        owner: Owner::Is(3, 4),
        ..BuildSettings::new("jffs2")
    };
    let big = settings(&[("big-endian", ""), ("pad", "")]);
    let report = build_verified(&one, &sources, &big, &registry, &mut Quiet::default()).unwrap();
    assert_eq!(report.formatted.fs_type, "jffs2");
    assert_eq!(report.bytes, text.len() as u64 + 3);
    build(&other, &sources, &big, &registry, &mut Quiet::default()).unwrap();
    let bytes = fs::read(&one).unwrap();
    assert!(bytes == fs::read(&other).unwrap());
    assert_eq!((&bytes[..2], bytes.len() % (64 << 10)), (&[0x19, 0x85][..], 0));
    assert!(bytes.len() < text.len(), "{} bytes", bytes.len());
    let image = Image::builder().registry(registry.clone()).open(&one).unwrap();
    assert!(image.volume(None).unwrap().read("/again").unwrap() == text);
    // A size that is too small is refused with one that suffices.
    let small = BuildSettings { size: Some(4096), ..settings(&[]) };
    let refused = build(&folder.path().join("x"), &sources, &small, &registry, &mut Quiet::default());
    assert!(matches!(refused, Err(BuildFailure::TooSmall { size: 4096, needed: 4097.. })), "{refused:?}");
}
