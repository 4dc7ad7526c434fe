//! Finds the process that holds a lock or has a device open.
//!
//! Only root can examine the processes of other users, so such a process may stay unidentified. A process
//! reports its own name, so the name is displayed and never trusted.
//! Source: proc_pid_fdinfo(5), the lines `ino:` and `lock:`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use obento_base::is_printable;

use super::User;
use crate::FileId;

/// The displayed length of a name.
const NAME: usize = 32;

/// Returns the holder of a lock on `id`.
pub(super) fn locking(id: FileId) -> Option<User> {
    find(|process, descriptor| {
        let info = fs::read_to_string(process.join("fdinfo").join(descriptor)).unwrap_or_default();
        let is_locked = info.lines().any(|line| line.starts_with("lock:"));
        let number = info.lines().find_map(|line| line.strip_prefix("ino:"));
        let may_be = number.is_none_or(|ino| id.ino == 0 || ino.trim() == id.ino.to_string());
        is_locked && may_be && FileId::of_open_file(&process.join("fd").join(descriptor)) == Some(id)
    })
}

/// Returns the process that has the block device `id` open.
pub(super) fn using(id: FileId) -> Option<User> {
    find(|process, descriptor| {
        let link = process.join("fd").join(descriptor);
        let is_device = fs::read_link(&link).is_ok_and(|target| target.starts_with("/dev"));
        is_device && id.ino == 0 && FileId::of_open_file(&link) == Some(id)
    })
}

/// Returns the first process with a matching descriptor. `is_it` receives the process folder in `/proc` and
/// the descriptor's number.
fn find(is_it: impl Fn(&Path, &std::ffi::OsStr) -> bool) -> Option<User> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))).find_map(
        |(pid, process): (u32, _)| {
            let mut descriptors = fs::read_dir(process.join("fd")).ok()?.flatten();
            descriptors.any(|descriptor| is_it(&process, &descriptor.file_name())).then(|| user(pid))
        },
    )
}

/// Returns whether the process reports that it is ending.
pub(super) fn is_ending(user: &User) -> bool {
    let User::Process { pid, .. } = user else { return false };
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_ascii_end() == super::ENDING.to_bytes()
}

/// Returns the process `pid`.
pub(super) fn user(pid: u32) -> User {
    if pid == std::process::id() {
        return User::Ourselves;
    }
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let name = name_of(&arguments).or_else(|| {
        let comm = fs::read(format!("/proc/{pid}/comm")).ok()?;
        Some(shown(comm.trim_ascii_end()))
    });
    User::Process { pid, name: name.unwrap_or_else(|| "?".to_owned()) }
}

/// Returns the name of the program, and the subcommand if the first argument looks like one.
fn name_of(arguments: &[u8]) -> Option<String> {
    let mut arguments = arguments.split(|&byte| byte == 0);
    let program = arguments.next().filter(|program| !program.is_empty())?;
    let program = shown(Path::new(std::ffi::OsStr::from_bytes(program)).file_name()?.as_bytes());
    let is_word =
        |word: &&[u8]| !word.is_empty() && word.len() <= 16 && word.iter().all(u8::is_ascii_lowercase);
    Some(match arguments.next().filter(is_word) {
        Some(word) => format!("{program} {}", shown(word)),
        None => program,
    })
}

/// Returns a name in a form that is safe to display.
fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    text.chars().take(NAME).map(|char| if is_printable(char) { char } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_by_its_program_and_subcommand_and_cannot_speak_to_the_terminal() {
        assert_eq!(name_of(b"/usr/bin/obento\0find\0disk.img\0").unwrap(), "obento find");
        assert_eq!(name_of(b"qemu-system-x86_64\0-m\x001G\0").unwrap(), "qemu-system-x86_64");
        assert_eq!(name_of(b"ev\x1b[2Jil\0\0").unwrap(), "ev?[2Jil");
        assert_eq!(name_of(b""), None);
    }
}
