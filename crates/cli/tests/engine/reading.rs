//! An image that another program filled, of each type with such a program, equals its source, and is only
//! read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use obento_testkit::btrfs::set_length;
use obento_testkit::oracle::{Oracle, require};
use obento_testkit::passed;
use obento_testkit::recipes::{FILLED, Recipe};

use crate::support::{Bench, digest};

fn reads(kind: &str) {
    let recipe = Recipe::of(FILLED, kind);
    let Some(bench) = Bench::of(recipe).filter(|_| require(&[Oracle::Root])) else { return };
    if kind == "xfs" {
        fs::write(bench.path("proto"), prototype(&bench.path("tree"))).unwrap();
    }
    recipe.make(&bench.path("."));
    let before = digest(&bench.path("image"));
    fs::create_dir(bench.path("out")).unwrap();
    bench.done("cp -a image:/ out/");
    bench.expect_equal("out", recipe.kept);
    assert!(bench.done("info image").contains(&format!("file system             {kind}")));
    assert_eq!(bench.done("cat image:/many/f399"), "399");
    bench.done("recover --list image");
    if kind == "xfs" {
        bench.done("recover image recovered");
        bench.expect_equal("recovered", recipe.kept);
    }
    assert_eq!(digest(&bench.path("image")), before, "reading changed the image");
    passed::report(kind, "read");
}

/// A tree in the format of mkfs.xfs(8): `-p protofile`.
fn prototype(tree: &Path) -> String {
    fn folder(at: &Path, out: &mut String) {
        let mut entries: Vec<_> = fs::read_dir(at).unwrap().map(Result::unwrap).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            let name = entry.file_name().into_string().unwrap();
            let (mode, owner) = (meta.mode() & 0o777, format!("{} {}", meta.uid(), meta.gid()));
            if meta.is_dir() {
                out.push_str(&format!("{name} d--{mode:03o} {owner}\n"));
                folder(&path, out);
                out.push_str("$\n");
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                out.push_str(&format!("{name} l--{mode:03o} {owner} {}\n", target.display()));
            } else {
                out.push_str(&format!("{name} ---{mode:03o} {owner} {}\n", path.display()));
            }
        }
    }
    let mut out = String::from("/dev/null\n0 0\nd--755 0 0\n");
    folder(tree, &mut out);
    out + "$\n"
}

#[test]
fn an_xfs_from_mkfs_with_a_prototype() {
    reads("xfs");
}

#[test]
fn a_btrfs_from_mkfs_with_a_folder() {
    reads("btrfs");
}

#[test]
fn an_f2fs_that_was_loaded() {
    reads("f2fs");
}

#[test]
fn an_hfs_that_was_filled_file_by_file() {
    reads("hfs");
}

#[test]
fn an_hfs_plus_that_lay_beside_an_iso_9660() {
    reads("hfsplus");
}

#[test]
fn an_iso_9660_with_rock_ridge() {
    reads("iso9660");
}

#[test]
fn a_squashfs() {
    reads("squashfs");
}

#[test]
fn an_erofs() {
    reads("erofs");
}

#[test]
fn a_cramfs() {
    reads("cramfs");
}

#[test]
fn a_romfs() {
    reads("romfs");
}

#[test]
fn an_ffs_of_the_first_version() {
    reads("ufs1");
}

#[test]
fn an_ffs_of_the_second_version() {
    reads("ufs");
}

#[test]
fn an_efs() {
    reads("efs");
}

#[test]
fn a_qnx6() {
    reads("qnx6");
}

#[test]
fn an_omfs() {
    reads("omfs");
}

#[test]
fn a_ufs_of_hp_ux() {
    reads("ufs-hp");
}

#[test]
fn a_bfs_of_beos() {
    reads("befs");
}

#[test]
fn a_vxfs_of_unixware() {
    reads("vxfs");
}

#[test]
fn the_owner_of_an_omfs_volume_is_the_given_one() {
    let recipe = Recipe::of(FILLED, "omfs");
    let Some(bench) = Bench::of(recipe) else { return };
    recipe.make(&bench.path("."));
    assert_eq!(bench.done("stat -c %a-%u-%g image:/five"), "755-0-0\n");
    let output = bench.obento("stat --mount-options uid=7,gid=8,fmask=0137 -c %a-%u-%g image:/five");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "640-7-8\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// Linux returns the first file of a hash chain of OMFS whose name begins with the requested name. These
/// names have one chain.
#[test]
fn a_name_on_an_omfs_leads_to_its_own_file_or_to_none() {
    let recipe = Recipe::of(FILLED, "omfs");
    let Some(bench) = Bench::of(recipe) else { return };
    bench.shell("rm -r tree && mkdir tree && echo long > tree/ab1");
    recipe.make(&bench.path("."));
    let output = bench.obento("cat image:/a");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("no such file"), "{said}");
    bench.shell("echo short > tree/a");
    recipe.make(&bench.path("."));
    assert_eq!(bench.done("cat image:/a image:/ab1"), "short\nlong\n");
    // They exchange their positions in the chain: Linux 6.1, fs/omfs/omfs_fs.h `i_name`, in each of two
    // copies.
    let mut bytes = fs::read(bench.path("image")).unwrap();
    for inode in bytes.chunks_mut(8192).filter(|block| block[83] == b'F') {
        let other: Option<&[u8]> = match &inode[152..156] {
            b"a\0\0\0" => Some(b"ab1\0"),
            b"ab1\0" => Some(b"a\0\0\0"),
            _ => None,
        };
        other.into_iter().for_each(|name| inode[152..156].copy_from_slice(name));
    }
    fs::write(bench.path("image"), bytes).unwrap();
    assert_eq!(bench.done("cat image:/ab1"), "short\n");
    for line in ["cat image:/a", "cp -a image:/ out"] {
        let output = bench.obento(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains("input/output error"), "{line}: {said}");
    }
}

#[test]
fn files_whose_names_follow_each_other_in_a_circle_are_copied() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.xfs")]) {
        return;
    }
    let bench = Bench::new();
    // Larger than the read-ahead, empty, and small: no name twice in one request, and no endless cycle.
    bench.shell("mkdir -p round/one round/two && cd round && echo small > one/0 && : > one/1");
    bench.shell("cd round/one && head -c 300000 /dev/zero > a && head -c 200000 /dev/zero > b");
    bench.shell(
        "cd round && ln one/a one/c && ln one/b two/a && ln one/a two/b && ln one/0 two/z && ln one/1 two/y",
    );
    bench.done("build image -t xfs --from round");
    fs::create_dir(bench.path("out")).unwrap();
    bench.done("cp -a image:/. out/");
    bench.shell("diff -r round out && test out/one/a -ef out/two/b");
}

#[test]
fn an_inode_is_named_by_its_number_alone() {
    for (kind, maker) in [("xfs", "mkfs.xfs"), ("minix", "mkfs.minix")] {
        if !require(&[Oracle::Program("linux.uml"), Oracle::Program(maker)]) {
            continue;
        }
        let bench = Bench::new();
        bench.done(&format!("build image -t {kind} --from tree"));
        let number = |path: &str| bench.done(&format!("stat -c %i image:{path}")).trim_end().to_owned();
        let (file, folder) = (number("/dir/deep/er/a"), number("/dir/deep"));
        assert_eq!(bench.done(&format!("cat image:<{file}>")).len(), 1, "{kind}");
        assert_eq!(bench.done(&format!("ls image:<{folder}>")), "er\n", "{kind}");
        assert_eq!(bench.done(&format!("stat -c %i:%s image:<{file}>")), format!("{file}:1\n"), "{kind}");
        // Also as a target.
        bench.done(&format!("cp tree/five image:<{folder}>"));
        assert_eq!(bench.done("ls image:/dir/deep"), "er\nfive\n", "{kind}");
        let output = bench.obento("cat image:<999999>");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains("no file has this inode number"), "{said}");
    }
}

#[test]
fn a_folder_for_temporary_files_that_takes_none_is_passed_over() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.minix")]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 1);
    bench.shell("mkfs.minix -3 image");
    let long = bench.path(&format!("{0}/{0}", "n".repeat(100)));
    fs::create_dir_all(&long).unwrap();
    for folder in [std::path::Path::new("/nonexistent"), &long] {
        let output = bench.command("ls image").env("TMPDIR", folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_squashfs_volume_of_any_length_is_read_completely() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mksquashfs")]) {
        return;
    }
    let bench = Bench::new();
    bench.shell("mkdir few && cp tree/small few");
    // Lengths around sectors and around the blocks in which Linux reads.
    for extra in [0, 1, 300, 511, 512, 700, 1024, 2000] {
        bench.shell(&format!("head -c {extra} /dev/urandom >few/extra"));
        bench.shell("mksquashfs few image -noappend -quiet -nopad -noD -noF");
        bench.done("cp -r image:/ out");
        bench.shell("diff -r few out && rm -r out");
    }
}

#[test]
fn a_btrfs_of_odd_length_is_read_and_changed() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.btrfs")]) {
        return;
    }
    let bench = Bench::new();
    bench.shell("truncate -s 120000001 image && mkfs.btrfs -q image");
    // The volume may claim to be as long as its file.
    set_length(&bench.path("image"), 120_000_001);
    bench.done("cp tree/five image:/");
    bench.done("cp image:/five out");
    bench.shell("cmp tree/five out");
    bench.shell("btrfs check --readonly image");
    assert_eq!(bench.path("image").metadata().unwrap().len(), 120_000_001);
}
