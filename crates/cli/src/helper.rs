//! `mount.fuse.obento` and `umount.fuse.obento`: the names by which mount(8) and umount(8) run this program; and
//! `fusermount`, by which a FUSE server runs it that obento started.
//!
//! Source: mount(8), "EXTERNAL HELPERS": `mount.SUFFIX SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`;
//! umount(8), "EXTERNAL HELPERS": `umount.SUFFIX DIR|DEVICE [-flnrv] [-N NAMESPACE] [-t TYPE]`; "EXIT STATUS".

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use crate::messages::print_error;

/// The exit code of mount(8) for wrong usage.
const USAGE: u8 = 1;
/// The exit code of mount(8) for a failed mount or unmount.
const FAILED: u8 = 32;

/// Runs as a helper, if the process has the name of one. `run` runs the program with arguments, and returns its exit code.
pub fn main(run: impl FnOnce(Vec<OsString>) -> u8) -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let program = arguments.next()?;
    let arguments: Vec<OsString> = arguments.collect();
    let translated = match Path::new(&program).file_name()?.as_bytes() {
        b"mount.fuse.obento" => mount(arguments),
        b"umount.fuse.obento" => umount(arguments),
        b"fusermount" | b"fusermount3" => return Some(fusermount(&arguments)),
        _ => return None,
    };
    let code = match translated {
        Some(HelperTask::Nothing) => 0,
        Some(HelperTask::Run(words)) => {
            if run(words) == 0 {
                0
            } else {
                FAILED
            }
        }
        None => {
            let program = Path::new(&program).display();
            print_error(format_args!("usage: {program} SPEC DIR [-sfnv] [-o OPTIONS]\n"));
            USAGE
        }
    };
    Some(ExitCode::from(code))
}

fn fusermount(arguments: &[OsString]) -> ExitCode {
    match obento_fuse_source::mount_helper(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(format_args!("cannot connect the server: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// The task of a helper.
#[derive(PartialEq, Eq, Debug)]
enum HelperTask {
    /// `-f`: do nothing.
    Nothing,
    /// Run this program with these arguments.
    Run(Vec<OsString>),
}

/// The arguments of a helper: flags, values, and operands.
struct Split {
    flags: Vec<u8>,
    options: Vec<OsString>,
    names: Vec<OsString>,
}

/// Returns `None` for arguments that mount(8) and umount(8) never pass.
fn split(arguments: Vec<OsString>, flags: &[u8]) -> Option<Split> {
    let mut split = Split { flags: Vec::new(), options: Vec::new(), names: Vec::new() };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_bytes() {
            b"-o" => split.options.push(arguments.next()?),
            b"-t" | b"-N" => drop(arguments.next()?),
            [b'-', given @ ..] if !given.is_empty() => {
                given.iter().all(|flag| flags.contains(flag)).then_some(())?;
                split.flags.extend_from_slice(given);
            }
            _ => split.names.push(argument),
        }
    }
    Some(split)
}

fn mount(arguments: Vec<OsString>) -> Option<HelperTask> {
    let split = split(arguments, b"sfnvrw")?;
    let [spec, directory] = <[OsString; 2]>::try_from(split.names).ok()?;
    if split.flags.contains(&b'f') {
        return Some(HelperTask::Nothing);
    }
    let mut words: Vec<OsString> = vec!["obento".into(), "mount".into()];
    words.extend(split.flags.contains(&b's').then(|| "--sloppy".into()));
    words.extend(split.flags.contains(&b'r').then(|| "--read-only".into()));
    words.extend(split.options.into_iter().flat_map(|list| ["-o".into(), list]));
    words.extend(["--".into(), spec, directory]);
    Some(HelperTask::Run(words))
}

fn umount(arguments: Vec<OsString>) -> Option<HelperTask> {
    let split = split(arguments, b"flnrv")?;
    let [directory] = <[OsString; 1]>::try_from(split.names).ok()?;
    let mut words: Vec<OsString> = vec!["obento".into(), "umount".into()];
    words.extend(split.flags.contains(&b'f').then(|| "--force".into()));
    words.extend(split.flags.contains(&b'l').then(|| "--lazy".into()));
    words.extend(["--".into(), directory]);
    Some(HelperTask::Run(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_arguments_of_mount_become_those_of_the_subcommand() {
        let called = mount(words("disk.img /mnt -sn -o rw,noatime -t fuse.obento"));
        let run = words("obento mount --sloppy -o rw,noatime -- disk.img /mnt");
        assert_eq!(called, Some(HelperTask::Run(run)));
        assert_eq!(mount(words("disk.img /mnt -f")), Some(HelperTask::Nothing));
        assert_eq!(mount(words("disk.img")), None);
        assert_eq!(mount(words("disk.img /mnt -x")), None);
    }

    #[test]
    fn the_arguments_of_umount_become_those_of_the_subcommand() {
        let called = umount(words("/mnt -l -t fuse.obento"));
        assert_eq!(called, Some(HelperTask::Run(words("obento umount --lazy -- /mnt"))));
    }
}
