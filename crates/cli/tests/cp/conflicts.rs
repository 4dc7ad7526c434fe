//! Two sources of one name, or of two names that the volume takes for one: the second is reported, and nothing is lost.

use std::fs;
use std::process::Command;

use obento_testkit::Oracle;
use obento_testkit::oracle::{LoopMount, call};

use crate::Bench;

const JUST_CREATED: &str = "an earlier source has the same name";
const EXT4: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")];

/// A folder `s` with names that volumes without case take for one, as files and as directories.
fn sources(bench: &Bench) {
    bench.write("s/README", "upper");
    bench.write("s/readme", "lower");
    bench.write("dirs/Docs/one", "1");
    bench.write("dirs/docs/two", "2");
}

#[test]
fn a_volume_without_case_keeps_the_first_of_two_names_and_reports_the_second() {
    let Some(bench) = Bench::new(&[]) else { return };
    sources(&bench);
    for kind in ["vfat", "exfat"] {
        for args in [&["-r", "s/."][..], &["-r", "s"], &["s/README", "s/readme"], &["-r", "s/.", "s/."]] {
            bench.mkfs(kind, "v.img");
            bench.fails(&[&["cp"], args, &["v.img:/"]].concat(), JUST_CREATED);
            let found = bench.prints(&["find", "v.img:/", "-iname", "readme", "-printf", "%f"]);
            // The order is that of the host's directory.
            let (kept, expected) = match &*found {
                "README" => ("README", "upper"),
                name => (name, "lower"),
            };
            assert!(["README", "readme"].contains(&kept), "{kind} {args:?}: {found}");
            let place = bench.prints(&["find", "v.img:/", "-iname", "readme"]);
            assert_eq!(bench.prints(&["cat", place.trim()]), expected, "{kind} {args:?}");
        }
    }
}

#[test]
fn a_volume_without_case_does_not_mix_two_directories_into_one() {
    let Some(bench) = Bench::new(&[]) else { return };
    sources(&bench);
    for args in [&["-r", "dirs/."][..], &["-r", "dirs"], &["-r", "dirs/Docs", "dirs/docs"]] {
        bench.mkfs("vfat", "v.img");
        bench.fails(&[&["cp"], args, &["v.img:/"]].concat(), JUST_CREATED);
        let files = bench.prints(&["find", "v.img:/", "-type", "f", "-printf", "%f"]);
        assert!(["one", "two"].contains(&&*files), "{args:?}: {files}");
    }
}

#[test]
fn a_file_that_was_there_before_is_replaced_under_any_name_that_the_volume_takes_for_its_own() {
    let Some(bench) = Bench::new(&[]) else { return };
    sources(&bench);
    bench.mkfs("vfat", "v.img");
    bench.quiet(&["cp", "s/README", "v.img:/"]);
    bench.quiet(&["cp", "s/readme", "v.img:/"]);
    assert_eq!(bench.prints(&["cat", "v.img:/README"]), "lower");
}

#[test]
fn an_archive_with_two_names_that_the_volume_takes_for_one_loses_neither_silently() {
    let Some(bench) = Bench::new(&[Oracle::Program("tar")]) else { return };
    sources(&bench);
    bench.write("s/sub/x", "x");
    // The directory is entered again before the second name comes.
    let tar = |name: &str, members: &[&str]| {
        call(
            "tar",
            [&["-C", bench.path().to_str().unwrap(), "-cf", bench.at(name).to_str().unwrap()], members]
                .concat(),
        )
        .unwrap();
    };
    tar("two.tar", &["s/README", "s/sub/x", "s/readme"]);
    tar("same.tar", &["s/README", "s/sub/x", "s/README"]);
    bench.mkfs("vfat", "v.img");
    bench.fails(&["import", "v.img:/", "two.tar"], JUST_CREATED);
    assert_eq!(bench.prints(&["cat", "v.img:/s/README"]), "upper");
    // A member that comes twice replaces itself, as with tar.
    bench.mkfs("vfat", "v.img");
    bench.prints(&["import", "v.img:/", "same.tar"]);
    bench.fails_with(
        2,
        &["build", "-q", "-t", "vfat", "b.img", "--from", "two.tar"],
        "as equal to another name",
    );
}

#[test]
fn a_directory_of_ext4_that_folds_case_is_asked_and_not_the_type_of_the_volume() {
    let Some(bench) = Bench::new(EXT4) else { return };
    // The same letter, composed and decomposed.
    bench.write("s/\u{e9}", "composed");
    bench.write("s/e\u{301}", "decomposed");
    bench.write("s/A", "upper");
    bench.write("s/a", "lower");
    bench.ext4("c.img", &["-O", "casefold", "-E", "encoding=utf8"]);
    bench.quiet(&["mkdir", "c.img:/plain", "c.img:/folds"]);
    bench.quiet(&["chattr", "+F", "c.img:/folds"]);
    bench.quiet(&["cp", "-r", "s/.", "c.img:/plain"]);
    bench.fails(&["cp", "-r", "s/.", "c.img:/folds"], JUST_CREATED);
    assert_eq!(bench.prints(&["ls", "c.img:/folds"]).lines().count(), 2);
    call("e2fsck", ["-fn", bench.at("c.img").to_str().unwrap()]).unwrap();
}

#[test]
fn sources_of_one_name_are_merged_and_do_not_overwrite_each_other() {
    let Some(bench) = Bench::new(EXT4) else { return };
    for (name, text) in [("A/d/f", "a"), ("B/d/f", "b"), ("A/d/a", "1"), ("B/d/b", "2"), ("B/d/sub/x", "3")] {
        bench.write(name, text);
    }
    bench.ext4("t.img", &[]);
    bench.quiet(&["cp", "-r", "A", "B", "t.img:/"]);
    fs::create_dir(bench.at("host")).unwrap();
    bench.quiet(&["mkdir", "t.img:/to", "t.img:/contents"]);
    bench.fails(&["cp", "-r", "A/d", "B/d", "t.img:/to"], JUST_CREATED);
    bench.fails(&["cp", "-r", "A/.", "B/.", "t.img:/contents"], JUST_CREATED);
    bench.fails(&["cp", "-r", "t.img:/A/d", "t.img:/B/d", "host"], JUST_CREATED);
    let listed = bench.prints(&["find", "t.img:/to", "-printf", "%P "]);
    for name in ["d/f", "d/a", "d/b", "d/sub/x"] {
        assert!(listed.split(' ').any(|listed| listed == name), "{name}: {listed}");
        assert!(bench.at("host").join(name).exists(), "{name}");
        assert!(bench.obento(&["stat", &format!("t.img:/contents/{name}")]).status.success(), "{name}");
    }
    assert_eq!(bench.prints(&["cat", "t.img:/to/d/f", "t.img:/contents/d/f"]), "aa");
    assert_eq!(fs::read_to_string(bench.at("host/d/f")).unwrap(), "a");
    // With numbers, the first is kept, as GNU cp has it.
    bench.quiet(&["mkdir", "t.img:/numbered"]);
    bench.quiet(&["cp", "--backup=numbered", "A/d/f", "B/d/f", "t.img:/numbered"]);
    assert_eq!(bench.prints(&["cat", "t.img:/numbered/f", "t.img:/numbered/f.~1~"]), "ba");
}

#[test]
fn a_move_does_not_replace_a_file_that_the_same_command_moved() {
    let Some(bench) = Bench::new(EXT4) else { return };
    bench.write("A/f", "a");
    bench.write("B/f", "b");
    bench.ext4("t.img", &[]);
    bench.quiet(&["cp", "-r", "A", "B", "t.img:/"]);
    bench.quiet(&["mkdir", "t.img:/to", "t.img:/from-host"]);
    bench.fails(&["mv", "t.img:/A/f", "t.img:/B/f", "t.img:/to"], "has already moved");
    bench.fails(&["mv", "A/f", "B/f", "t.img:/from-host"], "has already moved");
    assert_eq!(bench.prints(&["cat", "t.img:/to/f", "t.img:/B/f", "t.img:/from-host/f"]), "aba");
    assert_eq!(fs::read_to_string(bench.at("B/f")).unwrap(), "b");
}

#[test]
fn a_name_can_be_changed_in_case_alone() {
    let Some(bench) = Bench::new(&[]) else { return };
    bench.write("README", "text");
    for kind in ["vfat", "exfat"] {
        bench.mkfs(kind, "v.img");
        bench.quiet(&["cp", "README", "v.img:/"]);
        bench.quiet(&["mv", "v.img:/README", "v.img:/readme"]);
        // By a name that is not the one in the directory.
        bench.quiet(&["mv", "v.img:/ReadMe", "v.img:/readme"]);
        assert_eq!(
            bench.prints(&["find", "v.img:/", "-name", "readme", "-printf", "%f"]),
            "readme",
            "{kind}"
        );
        assert_eq!(bench.prints(&["cat", "v.img:/readme"]), "text", "{kind}");
    }
}

#[test]
fn a_directory_of_the_host_without_case_keeps_the_first_of_two_names() {
    let oracles = [EXT4, &[Oracle::Root, Oracle::LoopMount, Oracle::Program("mkfs.fat")]].concat();
    let Some(bench) = Bench::new(&oracles) else { return };
    sources(&bench);
    bench.ext4("t.img", &[]);
    bench.quiet(&["cp", "-r", "s", "dirs", "t.img:/"]);
    bench.mkfs("vfat", "v.img");
    let Ok(mount) = LoopMount::new(&bench.at("v.img"), "rw") else { return };
    let to = mount.path().to_str().unwrap();
    bench.fails(&["cp", "-r", "t.img:/s/.", to], JUST_CREATED);
    bench.fails(&["cp", "-r", "t.img:/dirs", to], JUST_CREATED);
    let found = Command::new("find").arg(to).args(["-type", "f", "-printf", "%f "]).output().unwrap();
    let found = crate::text(&found.stdout);
    assert_eq!(found.split_whitespace().count(), 2, "{found}");
    mount.unmount().unwrap();
}
