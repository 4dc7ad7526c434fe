use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use obento_base::{Error, Mode};

use super::*;
use crate::Volume;

fn error<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_file_is_made_read_changed_and_removed_by_its_path() {
    let volume = Volume::in_memory();
    volume.create_dir_all("a/b//c/").unwrap();
    volume.write("/a/b/f", "one").unwrap();
    volume.write("/a/b/f", "2").unwrap();
    assert_eq!(volume.read("/a/b/../b/f").unwrap(), b"2");
    volume.rename("/a/b/f", "/a/g").unwrap();
    assert!(!volume.exists("/a/b/f").unwrap() && volume.exists("/a/g").unwrap());
    assert_eq!(error(volume.remove_dir("/a")), "cannot remove '/a': directory not empty");
    volume.remove_file("/a/g").unwrap();
    volume.remove_dir("/a/b/c").unwrap();
    assert_eq!(volume.walk_from("/a").unwrap().count(), 4);
}

#[test]
fn errors_name_the_call_the_path_and_the_reason_and_hostile_names_cannot_act_on_a_terminal() {
    let volume = Volume::in_memory();
    volume.write("/f", "").unwrap();
    assert_eq!(error(volume.read("/f/x")), "cannot read '/f/x': not a directory");
    assert_eq!(error(volume.read("/")), "cannot read '/': is a directory");
    assert_eq!(error(volume.read_dir("/f")), "cannot list '/f': not a directory");
    assert_eq!(
        error(volume.create_dir("/x\x1b[2J/y")),
        r"cannot create the directory '/x\033[2J/y': no such file or directory"
    );
    assert_eq!(error(volume.create_dir_all("/f/g")), "cannot create the directory '/f': not a directory");
    assert_eq!(error(volume.remove_file("/f/")), "cannot remove '/f/': not a directory");
    assert_eq!(
        error(volume.symlink("t", "/new/")),
        "cannot create the link '/new/': no such file or directory"
    );
    let io: std::io::Error = volume.open("/none").unwrap_err().into();
    assert_eq!(io.to_string(), "cannot open '/none': no such file or directory");
}

#[test]
fn options_of_opening_allow_and_make_what_those_of_the_standard_library_do() {
    let volume = Volume::in_memory();
    let kind =
        |options: &OpenOptions, path: &str| options.open(&volume, path).map(drop).map_err(|e| e.error());
    let options = |read, write, append| {
        let mut options = OpenOptions::new();
        options.read(read).write(write).append(append);
        options
    };
    assert_eq!(kind(&options(false, false, false), "/"), Err(Error::Invalid));
    assert_eq!(kind(options(true, false, false).create(true), "/f"), Err(Error::Invalid));
    assert_eq!(kind(options(false, false, true).truncate(true), "/f"), Err(Error::Invalid));
    assert_eq!(kind(&options(false, true, false), "/f"), Err(Error::NotFound));
    assert_eq!(kind(options(false, true, false).create(true).mode(Mode::new(0o640)), "/f"), Ok(()));
    assert_eq!(volume.metadata("/f").unwrap().permissions(), Mode::new(0o640));
    assert_eq!(kind(options(false, true, false).create_new(true), "/f"), Err(Error::Exists));
    assert_eq!(kind(&options(false, true, false), "/"), Err(Error::IsDirectory));
    // A dangling symbolic link: `create` creates its target, `create_new` fails because the name exists.
    volume.create_dir("/d").unwrap();
    volume.symlink("d/target", "/link").unwrap();
    assert_eq!(kind(options(false, true, false).create_new(true), "/link"), Err(Error::Exists));
    assert_eq!(kind(options(false, true, false).create(true), "/link"), Ok(()));
    assert!(volume.symlink_metadata("/d/target").unwrap().is_file());
    volume.symlink("loop", "/loop").unwrap();
    assert_eq!(kind(options(false, true, false).create(true), "/loop"), Err(Error::Loop));
}

#[test]
fn a_position_moves_with_reads_and_writes_and_appending_goes_to_the_end() {
    let volume = Volume::in_memory();
    let mut file = OpenOptions::new().read(true).write(true).create(true).open(&volume, "/f").unwrap();
    file.write_all(b"0123456789").unwrap();
    assert_eq!(file.seek(SeekFrom::Current(-4)).unwrap(), 6);
    file.write_all(b"x").unwrap();
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "789");
    assert!(file.seek(SeekFrom::End(-11)).is_err());
    let mut end = OpenOptions::new().append(true).open(&volume, "/f").unwrap();
    end.write_all(b"!").unwrap();
    assert_eq!(end.stream_position().unwrap(), 11);
    assert_eq!(volume.read("/f").unwrap(), b"012345x789!");
    assert!(end.read(&mut [0]).is_err() && (&file).read(&mut [0]).is_ok());
    let mut exact = [0; 3];
    assert!(file.read_exact_at(&mut exact, 9).is_err());
    file.read_exact_at(&mut exact, 8).unwrap();
    assert_eq!(&exact, b"89!");
}

#[test]
fn an_open_file_outlives_its_name() {
    let volume = Volume::in_memory();
    let mut file = OpenOptions::new().read(true).write(true).create(true).open(&volume, "/f").unwrap();
    volume.remove_file("/f").unwrap();
    file.write_all(b"still").unwrap();
    assert_eq!((file.metadata().unwrap().len(), file.metadata().unwrap().nlink()), (5, 0));
}

#[test]
fn a_listing_of_many_entries_has_each_once() {
    let volume = Volume::in_memory();
    volume.create_dir("/d").unwrap();
    for number in 0..1000 {
        volume.write(format!("/d/{number}"), "").unwrap();
    }
    let names: Vec<_> =
        volume.read_dir("/d").unwrap().map(|entry| entry.unwrap().file_name().to_vec()).collect();
    assert_eq!((names.len(), names.iter().collect::<BTreeSet<_>>().len()), (1000, 1000));
}

#[test]
fn a_volume_that_is_closed_reads_and_refuses_changes() {
    let volume = Volume::in_memory();
    volume.write("/f", "kept").unwrap();
    volume.close().unwrap();
    assert_eq!(volume.read("/f").unwrap(), b"kept");
    assert_eq!(error(volume.create_dir("/d")), "cannot create the directory '/d': read-only");
}
