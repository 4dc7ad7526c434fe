//! Images in disk image formats, judged by qemu-img, simg2img and zstd.

use super::*;

/// Files with data, so that an image has data, holes and units that repeat.
fn bench() -> Bench {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("text"), "a line of text\n".repeat(90_000)).unwrap();
    fs::write(tree.join("pattern"), [1, 2, 3, 4].repeat(200_000)).unwrap();
    File::create(tree.join("sparse")).unwrap().set_len(30 << 20).unwrap();
    bench
}

impl Bench {
    #[track_caller]
    fn has_same_disk(&self, raw: &str, name: &str, format: &str) {
        let (raw, image) = (self.path(raw), self.path(name));
        let args = ["compare", "-f", "raw", "-F", format].map(Path::new);
        call("qemu-img", args.into_iter().chain([&*raw, &*image])).unwrap();
    }
}

#[test]
fn the_name_selects_the_format_and_two_builds_have_the_same_bytes() {
    if !require(&["qemu-img", "e2fsck"].map(Oracle::Program)) {
        return;
    }
    let bench = bench();
    bench.run("build root.img --from tree -q", 0);
    bench.fsck("root.img");
    for (name, format, options) in [
        ("root.qcow2", "qcow2", ""),
        ("packed.qcow2", "qcow2", " --compress --verify"),
        ("root.vmdk", "vmdk", ""),
        ("root.vdi", "vdi", " --verify"),
        ("root.vhd", "vpc", ""),
        ("named", "qcow2", " --format qcow2"),
    ] {
        bench.run(&format!("build {name} --from tree -q{options}"), 0);
        bench.has_same_disk("root.img", name, format);
        if matches!(format, "qcow2" | "vdi") {
            let args = ["check", "-q", "-f", format].map(Path::new);
            call("qemu-img", args.into_iter().chain([&*bench.path(name)])).unwrap();
        }
        let first = fs::read(bench.path(name)).unwrap();
        assert!(first.len() < 24 << 20, "{name} has {} bytes", first.len());
        bench.run(&format!("build {name} --from tree -q --force{options}"), 0);
        assert!(fs::read(bench.path(name)).unwrap() == first, "{name}");
    }
    bench.run("diff -r root.qcow2:/ root.img:/", 0);
}

#[test]
fn android_sparse_and_packed_images_unpack_to_the_same_disk() {
    if !require(&["simg2img", "zstd", "cmp"].map(Oracle::Program)) {
        return;
    }
    let bench = bench();
    bench.run("build root.img --from tree -q", 0);
    bench.run("build root.simg --from tree -q --verify", 0);
    call("simg2img", [bench.path("root.simg"), bench.path("sparse.img")]).unwrap();
    bench.run("build root.img.zst --from tree -q --verify", 0);
    call(
        "zstd",
        [
            "-dq".as_ref(),
            bench.path("root.img.zst").as_os_str(),
            "-o".as_ref(),
            bench.path("packed.img").as_os_str(),
        ],
    )
    .unwrap();
    for name in ["sparse.img", "packed.img"] {
        call("cmp", [bench.path("root.img"), bench.path(name)]).unwrap();
    }
}

#[test]
fn a_whole_disk_is_built_in_a_format() {
    if !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let bench = bench();
    let layout = "[disk]\ntable = \"gpt\"\nsize = \"96M\"\n[[partition]]\ntype = \"linux-generic\"\ncontent = \"ext4\"\nfrom = [\"tree\"]\n";
    fs::write(bench.path("disk.toml"), layout).unwrap();
    bench.run("build disk.img --disk disk.toml -q", 0);
    for (name, format, options) in
        [("disk.qcow2", "qcow2", ""), ("disk.vhd", "vpc", " --verify"), ("disk.vdi", "vdi", "")]
    {
        bench.run(&format!("build {name} --disk disk.toml -q{options}"), 0);
        bench.has_same_disk("disk.img", name, format);
        let first = fs::read(bench.path(name)).unwrap();
        bench.run(&format!("build {name} --disk disk.toml -q --force{options}"), 0);
        assert!(fs::read(bench.path(name)).unwrap() == first, "{name}");
        bench.run(&format!("diff -r {name}@1:/ disk.img@1:/"), 0);
    }
}

#[test]
fn names_and_options_that_contradict_each_other_are_refused() {
    let bench = bench();
    for (line, words) in [
        ("build root.qcow2.gz --from tree", "a .gz file contains a raw disk, not a qcow2 image"),
        ("build root.vmdk --compress --from tree", "--compress requires the format qcow2"),
        ("build root.img --compress --from tree", "--compress requires the format qcow2"),
    ] {
        let (_, errors) = bench.run(line, 2);
        assert!(errors.contains(words), "{line}: {errors}");
    }
    assert_eq!(fs::read_dir(bench.0.path()).unwrap().count(), 1);
}
