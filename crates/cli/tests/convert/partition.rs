//! Conversions to a partition of an existing disk.

use super::*;

#[test]
fn a_partition_of_a_disk_gets_an_image_as_qemu_img_writes_it_and_its_neighbours_stay() {
    if !require(&["qemu-img", "sgdisk", "mke2fs", "e2fsck", "zstd"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = |name: &str| folder.join(name);
    File::create(path("root.img")).unwrap().set_len(24 * MIB).unwrap();
    call("mke2fs", ["-q", "-t", "ext4"].map(Path::new).into_iter().chain([&*path("root.img")])).unwrap();
    fs::write(path("file"), "contents of a file\n".repeat(50_000)).unwrap();
    succeed(folder, &["cp", "file", "root.img:/"]);
    succeed(folder, &["convert", "-q", "-c", "root.img", "root.qcow2"]);
    call("zstd", ["-q".as_ref(), path("root.img").as_os_str()]).unwrap();
    disk_with_neighbours(&path("before.img"));
    fs::copy(path("before.img"), path("peer.img")).unwrap();
    let target = format!(
        "driver=raw,offset={},size={},file.driver=file,file.filename={}",
        10 * MIB,
        32 * MIB,
        path("peer.img").display()
    );
    let root = path("root.img");
    let args = ["convert", "-n", "-f", "raw", root.to_str().unwrap(), "--target-image-opts", &target];
    call("qemu-img", args).unwrap();
    let sha = call("sha256sum", [path("root.img")]).unwrap().stdout;
    let sha = String::from_utf8(sha).unwrap()[..64].to_owned();
    for source in ["root.img", "root.qcow2", "root.img.zst"] {
        fs::copy(path("before.img"), path("disk.img")).unwrap();
        let args = ["convert", "--verify", "--checksum", source, "disk.img@2"];
        let output = obento(folder, &args);
        let (text, said) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{source}: {said}");
        assert!(text.starts_with(&format!("{sha}  {source}\n")), "{text}");
        assert!(text.contains("disk.img@2: 24 MiB in a partition of 32 MiB"), "{text}");
        assert!(
            said.contains("8 MiB are unused; 'obento resize disk.img@2 --maximum' grows the volume"),
            "{said}"
        );
        assert!(fs::read(path("disk.img")).unwrap() == fs::read(path("peer.img")).unwrap(), "{source}");
    }
    assert!(!path("disk.img@2").exists());
    succeed(folder, &["resize", "-q", "disk.img@2", "--maximum"]);
    call("sgdisk", ["-v".as_ref(), path("disk.img").as_os_str()]).unwrap();
    succeed(folder, &["convert", "-q", "disk.img@2", "back.img"]);
    call("e2fsck", ["-fn".as_ref(), path("back.img").as_os_str()]).unwrap();
    assert_eq!(fs::metadata(path("back.img")).unwrap().len(), 32 * MIB);
    let output = obento(folder, &["cat", "disk.img@2:/file"]);
    assert!(output.stdout == fs::read(path("file")).unwrap());

    // A partition of a qcow2 disk.
    succeed(folder, &["convert", "-q", "before.img", "disk.qcow2"]);
    succeed(folder, &["convert", "-q", "root.img", "disk.qcow2@2"]);
    call("qemu-img", ["check".as_ref(), "-q".as_ref(), path("disk.qcow2").as_os_str()]).unwrap();
    let args = ["compare", "-q", "-f", "raw", "-F", "qcow2"].map(Path::new);
    call("qemu-img", args.into_iter().chain([&*path("peer.img"), &*path("disk.qcow2")])).unwrap();
}

#[test]
fn a_partition_that_is_too_small_or_in_use_or_not_named_exactly_is_not_overwritten() {
    if !require(&["sgdisk", "mke2fs"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = |name: &str| folder.join(name);
    disk_with_neighbours(&path("disk.img"));
    let args = ["-c", "1:data", "-c", "3:data"].map(Path::new);
    call("sgdisk", args.into_iter().chain([&*path("disk.img")])).unwrap();
    File::create(path("root.img")).unwrap().set_len(24 * MIB).unwrap();
    File::create(path("large.img")).unwrap().set_len(33 * MIB).unwrap();
    File::create(path("small.img")).unwrap().set_len(MIB / 2).unwrap();
    call("mke2fs", ["-q", "-t", "ext4"].map(Path::new).into_iter().chain([&*path("root.img")])).unwrap();
    let before = fs::read(path("disk.img")).unwrap();
    let refused = |args: &[&str], words: &[&str]| {
        let output = obento(folder, &[&["convert"], args].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        words.iter().for_each(|words| assert!(said.contains(words), "{args:?}: {said}"));
        assert!(!path("disk.img@2").exists() && !path("disk.img@9").exists());
    };
    let large = ["the source has 33 MiB (34603008 bytes), and the partition only 32 MiB", "disk.img grow 2"];
    refused(&["large.img", "disk.img@2"], &large);
    refused(&["-f", "large.img", "disk.img@2"], &large);
    refused(&["root.img", "disk.img@9"], &["no such partition", "disk.img@3"]);
    refused(&["small.img", "disk.img@name=data"], &["data", "1", "3"]);
    refused(&["disk.img@1", "disk.img@2"], &["the source is on the same disk"]);
    refused(&["-O", "qcow2", "root.img", "disk.img@2"], &["--format is not available"]);
    refused(&["-c", "root.img", "disk.img@2"], &["--compress is not available"]);
    refused(&["--backing", "root.img", "disk.img@2"], &["--backing is not available"]);
    refused(&["missing.img", "disk.img@2"], &["missing.img"]);
    assert!(fs::read(path("disk.img")).unwrap() == before, "nothing was written");

    succeed(folder, &["convert", "-q", "root.img", "disk.img@2"]);
    refused(&["small.img", "disk.img@2"], &["it contains an ext4 file system of 24 MiB", "--force"]);
    succeed(folder, &["convert", "-q", "-f", "small.img", "disk.img@2"]);
    // Nothing of the earlier file system is found.
    let output = obento(folder, &["ls", "disk.img@2"]);
    assert!(!output.status.success());
    // The name of a file, not of a partition.
    for name in ["other@1.img", "disk.img@monday.img"] {
        succeed(folder, &["convert", "root.img", name]);
    }
    if !require(&[Oracle::Root, Oracle::LoopMount, Oracle::Program("losetup")]) {
        return;
    }
    let attached = call("losetup", ["-f".as_ref(), "--show".as_ref(), path("disk.img").as_os_str()]).unwrap();
    let device = String::from_utf8(attached.stdout).unwrap();
    let output = obento(folder, &["convert", "-f", "root.img", "disk.img@2"]);
    call("losetup", ["-d", device.trim()]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("in use by") && said.contains(device.trim()), "{said}");
}

#[test]
fn an_offset_is_not_a_partition_and_the_disk_stays_as_it_is() {
    if !require(&[Oracle::Program("sgdisk")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disk_with_neighbours(&folder.join("disk.img"));
    fs::write(folder.join("small.img"), vec![7; 65536]).unwrap();
    File::create(folder.join("plain.img")).unwrap().set_len(MIB).unwrap();
    let before = fs::read(folder.join("disk.img")).unwrap();
    for (target, hint) in [
        ("disk.img@+10M", "name a partition by its number: disk.img@2"),
        ("disk.img@+11M", "name a partition by its number: disk.img@PART"),
        ("disk.img@+0", "disk.img@PART"),
        ("plain.img@+4096", "plain.img@PART"),
    ] {
        for force in [&[][..], &["--force"]] {
            let output = obento(folder, &[&["convert", "small.img", target], force].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{target} {force:?}: {said}");
            assert!(said.contains("not a partition") && said.contains(hint), "{target} {force:?}: {said}");
        }
    }
    assert!(fs::read(folder.join("disk.img")).unwrap() == before, "nothing was written");
    assert!(fs::read(folder.join("plain.img")).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn an_overlay_is_not_written_to_a_disk_below_it() {
    if !require(&["qemu-img", "sgdisk"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disk_with_neighbours(&folder.join("base.img"));
    let create = ["create", "-q", "-f", "qcow2", "-F"];
    qemu_img(folder, &[&create[..], &["raw", "-b", "base.img", "middle.qcow2"]].concat());
    qemu_img(folder, &[&create[..], &["qcow2", "-b", "middle.qcow2", "top.qcow2"]].concat());
    let before = fs::read(folder.join("base.img")).unwrap();
    let refused = |source: &str, target: &str| {
        let output = obento(folder, &["--allow-backing", "convert", "-f", source, target]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{source}: {said}");
        assert!(said.contains("the source reads this disk as a backing file"), "{source}: {said}");
    };
    refused("middle.qcow2@1", "base.img@1");
    refused("top.qcow2@1", "base.img@3");
    refused("top.qcow2@1", "middle.qcow2@3");
    assert!(fs::read(folder.join("base.img")).unwrap() == before, "nothing was written");
    // Another disk is written.
    fs::copy(folder.join("base.img"), folder.join("other.img")).unwrap();
    succeed(folder, &["--allow-backing", "convert", "-q", "-f", "top.qcow2@1", "other.img@3"]);
    if !require(&[Oracle::Root, Oracle::LoopMount, Oracle::Program("losetup")]) {
        return;
    }
    let attached = call("losetup", ["-f".as_ref(), "--show".as_ref(), folder.join("base.img").as_os_str()]);
    let device = String::from_utf8(attached.unwrap().stdout).unwrap();
    let device = device.trim();
    let output = obento(folder, &["--allow-backing", "convert", "-f", "top.qcow2@1", &format!("{device}@3")]);
    call("losetup", ["-d", device]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("as a backing file"), "{said}");
    assert!(fs::read(folder.join("base.img")).unwrap() == before, "nothing was written");
}

#[test]
fn a_failure_before_the_first_write_reports_that_the_partition_was_not_changed() {
    if !require(&["sgdisk"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disk_with_neighbours(&folder.join("disk.img"));
    fs::write(folder.join("in.simg"), filled()).unwrap();
    let before = fs::read(folder.join("disk.img")).unwrap();
    let said = |limit: &str| {
        let output = obento(folder, &["convert", "--max-unpacked", limit, "in.simg", "disk.img@2"]);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = said("64K");
    assert!(text.contains("the partition was not changed") && !text.contains("incomplete"), "{text}");
    assert!(fs::read(folder.join("disk.img")).unwrap() == before);
    let text = said("4M");
    assert!(text.contains("the partition is incomplete, and its first MiB is zeros"), "{text}");
}
