//! The limits of files and bytes.

use super::*;

#[test]
fn more_files_than_allowed_are_refused_whatever_their_kind() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions { max_files: 4, ..TreeOptions::default() });
    tree.enter(name("dir"), &plain(0o755)).unwrap();
    tree.file(name("file"), &plain(0o644), content(b"x")).unwrap();
    tree.symlink(name("link"), &plain(0o777), b"file").unwrap();
    tree.leave().unwrap();
    let null = obento_base::DeviceNumber::default();
    tree.node(name("fifo"), &plain(0o600), FileKind::Fifo, null).unwrap();
    let limit = |entry: &str| HostError::FileLimit { path: root.path().join(entry), limit: 4 };
    assert_eq!(tree.enter(name("more"), &plain(0o755)).unwrap_err(), limit("more"));
    assert_eq!(tree.file(name("file"), &plain(0o644), content(b"x")).unwrap_err(), limit("file"));
    assert_eq!(tree.symlink(name("link"), &plain(0o777), b"x").unwrap_err(), limit("link"));
    tree.finish().unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
}

#[test]
fn more_bytes_than_allowed_are_refused_and_half_a_file_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions { max_bytes: 10, ..TreeOptions::default() });
    tree.file(name("small"), &plain(0o644), content(b"12345678")).unwrap();
    let error = tree.file(name("large"), &plain(0o644), content(b"123")).unwrap_err();
    assert_eq!(error, HostError::Limit { path: root.path().join("large"), limit: 10 });
    tree.finish().unwrap();
    assert!(root.path().join("small").exists() && !root.path().join("large").exists());
}

#[test]
fn a_file_that_takes_the_place_of_an_incomplete_one_remains() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    let path = root.path().join("file");
    let fill = |_: &mut dyn DataSink| {
        fs::rename(&path, root.path().join("moved")).unwrap();
        fs::write(&path, b"of another user").unwrap();
        Err(HostError::system("write", path.clone(), rustix::io::Errno::IO))
    };
    assert!(tree.file(name("file"), &plain(0o644), fill).is_err());
    tree.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"of another user");
}

#[test]
fn extended_attributes_count_as_bytes_unless_they_are_not_set() {
    let root = tempfile::tempdir().unwrap();
    let xattr = |name: &[u8]| [Xattr { name: name.to_vec(), value: vec![b'x'; 100] }];
    let (user, trusted) = (xattr(b"user.a"), xattr(b"trusted.a"));
    let meta = |xattrs| Metadata { xattrs, ..plain(0o755) };
    let limited = |options| writer(&root, TreeOptions { max_bytes: 250, ..options });
    let mut tree = limited(TreeOptions { trust: Trust::Untrusted, ..TreeOptions::default() });
    tree.file(name("one"), &meta(&user), content(b"1")).unwrap();
    for other in ["two", "three", "four"] {
        tree.file(name(other), &meta(&trusted), content(b"2")).unwrap();
    }
    tree.file(name("five"), &meta(&user), content(b"5")).unwrap();
    let limit = |entry: &str| HostError::Limit { path: root.path().join(entry), limit: 250 };
    assert_eq!(tree.file(name("six"), &meta(&user), content(b"")).unwrap_err(), limit("six"));
    assert_eq!(tree.enter(name("seven"), &meta(&user)).unwrap_err(), limit("seven"));
    assert_eq!(tree.symlink(name("eight"), &meta(&user), b"x").unwrap_err(), limit("eight"));
    tree.finish().unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 5);
    let mut tree = limited(TreeOptions { keep: Keep::MODE, ..TreeOptions::default() });
    for other in ["six", "seven", "eight"] {
        tree.file(name(other), &meta(&user), content(b"")).unwrap();
    }
    tree.finish().unwrap();
}
