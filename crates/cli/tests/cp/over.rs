//! Copies over files that exist, and what a copy cannot keep.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use obento_testkit::Oracle;
use obento_testkit::oracle::call;

use crate::Bench;
use crate::text;

const EXT4: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::Root];

#[test]
fn a_copy_stops_at_the_limit_of_files() {
    let Some(bench) = Bench::new(&[]) else { return };
    for name in ["one", "two", "three", "four", "five"] {
        bench.write(&format!("tree/{name}"), name);
    }
    bench.mkfs("ext4", "t.img");
    bench.prints(&["cp", "-r", "tree", "t.img:/"]);
    let limited = ["cp", "-a", "--max-files", "3", "t.img:/tree", "out"];
    bench.fails(&limited, "the limit of files (3) is reached");
    // The directory itself counts, too.
    assert!(fs::read_dir(bench.at("out")).unwrap().count() <= 2);
    bench.fails(&limited, "help: --max-files sets this limit");
    let into = ["cp", "-r", "--max-files", "3", "tree", "t.img:/again"];
    bench.fails(&into, "the limit of files (3) is reached");
    assert_eq!(bench.prints(&["ls", "t.img:/again"]).lines().count(), 2);
}

#[test]
fn a_copy_to_an_image_without_a_path_is_refused_with_the_path_to_use() {
    let Some(bench) = Bench::new(&[]) else { return };
    bench.write("f", "text");
    bench.write("g", "text");
    bench.mkfs("ext4", "t.img");
    bench.fails(&["cp", "f", "t.img"], "help: 't.img' is an image; use t.img:/ for its root directory");
    bench.fails(&["cp", "f", "g"], "help: use cp(1)");
}

#[test]
fn a_copy_over_a_file_of_the_host_keeps_its_mode_owner_and_attributes_unless_asked() {
    let Some(bench) = Bench::new(&[EXT4, &[Oracle::Program("setfattr")]].concat()) else { return };
    bench.write("f", "new");
    bench.ext4("t.img", &[]);
    bench.quiet(&["cp", "f", "t.img:/f"]);
    bench.quiet(&["chmod", "755", "t.img:/f"]);
    bench.quiet(&["chown", "5:6", "t.img:/f"]);
    let old = |name: &str| {
        bench.write(name, "old");
        fs::set_permissions(bench.at(name), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(bench.at(name), Some(11), Some(12)).unwrap();
        let path = bench.at(name);
        call("setfattr", ["-n", "user.note", "-v", "kept", path.to_str().unwrap()]).unwrap();
    };
    let found = |name: &str| {
        let meta = fs::metadata(bench.at(name)).unwrap();
        (meta.mode() & 0o7777, meta.uid(), meta.gid(), fs::read_to_string(bench.at(name)).unwrap())
    };
    old("plain");
    bench.quiet(&["cp", "t.img:/f", "plain"]);
    assert_eq!(found("plain"), (0o600, 11, 12, "new".into()));
    let note = call("getfattr", ["-n", "user.note", "--only-values", bench.at("plain").to_str().unwrap()]);
    assert!(format!("{note:?}").contains("kept"), "{note:?}");
    old("preserved");
    bench.quiet(&["cp", "-p", "t.img:/f", "preserved"]);
    assert_eq!(found("preserved"), (0o755, 5, 6, "new".into()));
    old("mode");
    bench.quiet(&["cp", "--preserve=mode", "t.img:/f", "mode"]);
    assert_eq!(found("mode"), (0o755, 11, 12, "new".into()));
}

#[test]
fn a_copy_writes_into_a_file_with_several_names_unless_links_are_kept() {
    let Some(bench) = Bench::new(EXT4) else { return };
    bench.write("f", "new");
    bench.write("old", "a longer old text");
    bench.ext4("t.img", &[]);
    bench.quiet(&["cp", "old", "t.img:/one"]);
    bench.quiet(&["ln", "t.img:/one", "t.img:/other"]);
    bench.quiet(&["cp", "f", "t.img:/one"]);
    assert_eq!(bench.prints(&["cat", "t.img:/other"]), "new");
    bench.write("f", "newer");
    bench.quiet(&["cp", "-d", "f", "t.img:/one"]);
    assert_eq!(bench.prints(&["cat", "t.img:/one", "t.img:/other"]), "newernew");
    call("e2fsck", ["-fn", bench.at("t.img").to_str().unwrap()]).unwrap();
}

#[test]
fn a_copy_within_an_image_over_another_name_of_its_source_loses_nothing() {
    let Some(bench) = Bench::new(EXT4) else { return };
    bench.write("A/f", "text");
    bench.ext4("t.img", &[]);
    bench.quiet(&["cp", "-r", "A", "t.img:/"]);
    bench.quiet(&["mkdir", "-p", "t.img:/B/A"]);
    bench.quiet(&["ln", "t.img:/A/f", "t.img:/B/A/f"]);
    bench.quiet(&["cp", "-r", "t.img:/A", "t.img:/B"]);
    assert_eq!(bench.prints(&["cat", "t.img:/A/f", "t.img:/B/A/f"]), "texttext");
    bench.quiet(&["ln", "-s", "A/f", "t.img:/link"]);
    bench.fails(&["cp", "t.img:/A/f", "t.img:/link"], "source and target are the same file");
    assert_eq!(bench.prints(&["cat", "t.img:/A/f"]), "text");
}

#[test]
fn a_link_that_leads_nowhere_is_not_written_through() {
    let Some(bench) = Bench::new(EXT4) else { return };
    bench.write("f", "text");
    symlink("f", bench.at("link")).unwrap();
    bench.ext4("t.img", &[]);
    bench.quiet(&["ln", "-s", "nowhere", "t.img:/gone"]);
    bench.fails(&["cp", "f", "t.img:/gone"], "the target of the symbolic link does not exist");
    // A backup keeps the link, and another link takes its place.
    bench.quiet(&["cp", "-b", "f", "t.img:/gone"]);
    assert_eq!(bench.prints(&["readlink", "t.img:/gone~"]), "nowhere\n");
    assert_eq!(bench.prints(&["cat", "t.img:/gone"]), "text");
    bench.quiet(&["ln", "-s", "nowhere", "t.img:/again"]);
    bench.quiet(&["cp", "-P", "link", "t.img:/again"]);
    assert_eq!(bench.prints(&["readlink", "t.img:/again"]), "f\n");
}

#[test]
fn flags_and_projects_that_a_copy_does_not_keep_are_counted() {
    let Some(bench) = Bench::new(EXT4) else { return };
    bench.write("f", "text");
    bench.ext4("t.img", &["-O", "project"]);
    bench.mkfs("ext4", "u.img");
    bench.quiet(&["cp", "f", "t.img:/f"]);
    bench.quiet(&["chattr", "-p", "7", "t.img:/f"]);
    bench.quiet(&["chattr", "+i", "t.img:/f"]);
    for target in ["u.img:/f", "copy"] {
        let copied = bench.obento(&["cp", "-a", "t.img:/f", target]);
        let said = text(&copied.stderr);
        assert!(said.contains("1 file without its attribute flags"), "{said}");
        assert!(said.contains("1 file without its project"), "{said}");
        assert_eq!(copied.status.code(), Some(0), "{said}");
    }
    // A copy that keeps nothing else misses nothing either.
    bench.quiet(&["cp", "t.img:/f", "plain"]);
}

#[test]
fn a_time_out_of_range_becomes_the_nearest_and_is_reported() {
    let Some(bench) = Bench::new(EXT4) else { return };
    bench.write("f", "text");
    bench.ext4("wide.img", &["-I", "256"]);
    bench.ext4("narrow.img", &["-I", "128"]);
    for (name, date, nearest) in
        [("late", "2200-01-01T00:00:00Z", "2038-01-19"), ("early", "1901-12-14T00:00:00Z", "1901-12-14")]
    {
        let (from, to) = (format!("wide.img:/{name}"), format!("narrow.img:/{name}"));
        bench.quiet(&["cp", "f", &from]);
        bench.quiet(&["touch", "-d", date, &from]);
        let copied = bench.obento(&["cp", "-a", &from, &to]);
        let said = text(&copied.stderr);
        assert_eq!(said.contains("1 file whose times are not preserved"), name == "late", "{said}");
        let found = bench.prints(&["stat", "-c", "%y", &to]);
        assert!(found.starts_with(nearest), "{name}: {found}");
    }
}
