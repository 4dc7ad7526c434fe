//! The permissions of new images.

use super::*;

#[test]
fn a_converted_image_gives_no_user_more_permissions_than_its_source_and_a_replaced_file() {
    let fixture = Fixture::new();
    let mode = |name: &str| fs::metadata(fixture.path(name)).unwrap().permissions().mode() & 0o7777;
    let set =
        |name: &str, mode| fs::set_permissions(fixture.path(name), fs::Permissions::from_mode(mode)).unwrap();
    fs::write(fixture.path("small.img"), vec![1; 65536]).unwrap();
    set("small.img", 0o600);
    for out in ["a.raw", "a.qcow2", "a.vhd", "a.vmdk", "a.vdi", "a.simg", "a.img.zst"] {
        succeed(fixture.folder(), &["convert", "-q", "small.img", out]);
        assert_eq!(mode(out), 0o600, "{out}");
    }
    // A file that is unpacked to its final place, a snapshot, and an image with a backing file.
    succeed(fixture.folder(), &["convert", "-q", "a.img.zst", "unpacked.raw"]);
    assert_eq!(mode("unpacked.raw"), 0o600);
    succeed(fixture.folder(), &["convert", "-q", "--backing", "small.img", "overlay.qcow2"]);
    assert_eq!(mode("overlay.qcow2"), 0o600);
    // The mode of an existing file is a limit too.
    set("small.img", 0o644);
    succeed(fixture.folder(), &["convert", "-q", "--force", "small.img", "a.qcow2"]);
    assert_eq!(mode("a.qcow2"), 0o600);
    // Without such a limit, the mode is that of the process.
    fs::write(fixture.path("new"), "").unwrap();
    succeed(fixture.folder(), &["convert", "-q", "small.img", "b.qcow2"]);
    assert_eq!(mode("b.qcow2"), mode("new") & 0o644);
}

#[test]
fn a_snapshot_is_no_more_readable_than_its_image() {
    if !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("a.qcow2");
    call("qemu-img", [Path::new("create"), Path::new("-q"), Path::new("-fqcow2"), &image, Path::new("1M")])
        .unwrap();
    call("qemu-img", [Path::new("snapshot"), Path::new("-c"), Path::new("before"), &image]).unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o600)).unwrap();
    succeed(folder.path(), &["convert", "-q", "a.qcow2%before", "b.raw"]);
    assert_eq!(fs::metadata(folder.path().join("b.raw")).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[test]
fn a_copy_of_an_overlay_is_as_private_as_each_file_below_it() {
    if !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("base.img"), vec![7; 1 << 20]).unwrap();
    let create = ["create", "-q", "-f", "qcow2", "-F"];
    qemu_img(folder, &[&create[..], &["raw", "-b", "base.img", "middle.qcow2"]].concat());
    qemu_img(folder, &[&create[..], &["qcow2", "-b", "middle.qcow2", "top.qcow2"]].concat());
    qemu_img(folder, &["snapshot", "-c", "before", "top.qcow2"]);
    for private in ["base.img", "middle.qcow2"] {
        for name in ["base.img", "middle.qcow2", "top.qcow2"] {
            let mode = if name == private { 0o600 } else { 0o644 };
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        for (source, out) in [
            ("top.qcow2", "out.raw"),
            ("top.qcow2", "out.qcow2"),
            ("top.qcow2%before", "out.raw"),
            ("middle.qcow2", "out.vmdk"),
        ] {
            succeed(folder, &["--allow-backing", "convert", "-q", source, out]);
            let mode = fs::metadata(folder.join(out)).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, 0o600, "{private}: {source}");
            fs::remove_file(folder.join(out)).unwrap();
        }
        succeed(folder, &["--allow-backing", "convert", "-q", "--backing", "top.qcow2", "over.qcow2"]);
        let mode = fs::metadata(folder.join("over.qcow2")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600, "{private}: --backing");
        fs::remove_file(folder.join("over.qcow2")).unwrap();
    }
}

#[test]
fn the_default_list_of_a_directory_gives_no_user_more_permissions_than_the_source() {
    if !require(&["setfacl", "getfacl"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("small.img"), vec![1; 65536]).unwrap();
    fs::create_dir(folder.join("shared")).unwrap();
    let shared = folder.join("shared");
    if call("setfacl", ["-d".as_ref(), "-m".as_ref(), "user:daemon:rw".as_ref(), shared.as_os_str()]).is_err()
    {
        return;
    }
    let list = |mode: u32, out: &str| {
        fs::set_permissions(folder.join("small.img"), fs::Permissions::from_mode(mode)).unwrap();
        succeed(folder, &["convert", "-q", "small.img", out]);
        let output = call("getfacl", ["-cp".as_ref(), folder.join(out).as_os_str()]).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mode = fs::metadata(folder.join(out)).unwrap().permissions().mode() & 0o7777;
        (text.split_whitespace().collect::<Vec<_>>().join(" "), mode)
    };
    let (text, mode) = list(0o640, "shared/a.qcow2");
    assert_eq!((&*text, mode), ("user::rw- group::r-- other::---", 0o640));
    let (text, mode) = list(0o600, "shared/b.qcow2");
    assert!(text.contains("user:daemon:rw- #effective:---") && mode == 0o600, "{text} {mode:o}");
    // All users may read this source.
    let (text, mode) = list(0o644, "shared/c.qcow2");
    assert!(text.contains("user:daemon:rw- #effective:r--") && mode == 0o644, "{text} {mode:o}");
}

#[test]
fn an_archive_of_an_image_gives_no_user_more_permissions_than_the_image() {
    let fixture = Fixture::new();
    let mode = |name: &str| fs::metadata(fixture.path(name)).unwrap().permissions().mode() & 0o7777;
    let set =
        |name: &str, mode| fs::set_permissions(fixture.path(name), fs::Permissions::from_mode(mode)).unwrap();
    succeed(fixture.folder(), &["mkfs", "-q", "private.img", "4M"]);
    set("private.img", 0o600);
    succeed(fixture.folder(), &["export", "private.img", "a.tar"]);
    assert_eq!(mode("a.tar"), 0o600);
    // An image that anyone may read sets no limit, and an existing file keeps its mode.
    set("private.img", 0o644);
    fs::write(fixture.path("new"), "").unwrap();
    succeed(fixture.folder(), &["export", "private.img", "b.tar"]);
    assert_eq!(mode("b.tar"), mode("new") & 0o644);
    set("private.img", 0o600);
    succeed(fixture.folder(), &["export", "private.img", "b.tar"]);
    assert_eq!(mode("b.tar"), mode("new") & 0o644);
}

#[test]
fn a_disk_that_more_users_may_read_than_the_new_contents_of_its_partition_is_reported() {
    let fixture = Fixture::new();
    let set =
        |name: &str, mode| fs::set_permissions(fixture.path(name), fs::Permissions::from_mode(mode)).unwrap();
    fs::write(fixture.path("small.img"), vec![1; 65536]).unwrap();
    succeed(fixture.folder(), &["part", "parts.img", "create", "gpt", "--size", "8M"]);
    succeed(fixture.folder(), &["part", "parts.img", "add", "--size", "1M"]);
    set("parts.img", 0o644);
    for (mode, is_reported) in [(0o600, true), (0o644, false)] {
        set("small.img", mode);
        let output = obento(fixture.folder(), &["convert", "--force", "small.img", "parts.img@1"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let note = "parts.img: note: more users may read this disk than 'small.img'";
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains(note), is_reported, "{said}");
    }
}
