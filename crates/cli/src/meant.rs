//! Suggestions for a word that is not the name of a command.

use std::path::Path;

use clap::{Command, error::ContextKind};
use obento::Registry;

use crate::parse::similar::similar;
use crate::report::{Report, shell_word, subject};

/// The names that other programs use for what a command does. An empty name has no suggestion, although the name of a
/// command is similar.
const SYNONYMS: &[(&str, &str)] = &[
    ("checksum", "sha256sum"),
    ("chkdsk", "check"),
    ("compare", "diff"),
    ("copy", "cp"),
    ("create", "mkfs"),
    ("del", "rm"),
    ("delete", "rm"),
    ("dir", "ls"),
    ("erase", "rm"),
    ("exit", ""),
    ("extract", "cp -a"),
    ("fdisk", "part"),
    ("format", "mkfs"),
    ("free", "df"),
    ("fsck", "check"),
    ("grow", "resize"),
    ("hash", "sha256sum"),
    ("label", "tune -L"),
    ("link", "ln"),
    ("list", "ls"),
    ("md5", "md5sum"),
    ("move", "mv"),
    ("parted", "part"),
    ("partition", "part"),
    ("partitions", "part"),
    ("remove", "rm"),
    ("rename", "mv"),
    ("repair", "check -y"),
    ("sha1", "sha1sum"),
    ("sha256", "sha256sum"),
    ("sha512", "sha512sum"),
    ("shrink", "resize"),
    ("symlink", "ln -s"),
    ("tar", "export"),
    ("unmount", "umount"),
    ("unpack", "cp -a"),
    ("untar", "import"),
    ("verify", "check"),
    ("version", "--version"),
];

/// Returns the report of a word that is not the name of a command of `tree`. `help` is the command that lists the commands.
pub fn unknown_command(error: &clap::Error, tree: &Command, help: &str) -> Report {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    // The usage of a command with subcommands names the command.
    let outer = usage.split("obento ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let outer = outer.filter(|word| !word.starts_with(['<', '[']));
    let list = match outer {
        Some(outer) => format!("'{help} {outer}' lists the commands"),
        None => format!("'{help}' lists the commands"),
    };
    let name = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string).unwrap_or_default();
    let report = Report::plain(format!("unknown command {}", subject(&name)));
    let meant = match outer {
        Some(outer) => tree.find_subcommand(outer).and_then(|outer| alike(&name, outer)),
        None => meant(&name, tree),
    };
    match meant {
        Some(meant) => report.help(format!("did you mean '{meant}'? {list}")),
        // In a shell, the image is given by the shell.
        None if outer.is_none() && help.starts_with("obento") && is_image(&name) => {
            report.help(format!("the command comes before the image: obento ls {}", shell_word(&name)))
        }
        None => report.help(list),
    }
}

/// Returns the command that a user who wrote `name` means.
fn meant(name: &str, tree: &Command) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    if let Some((_, known)) = SYNONYMS.iter().find(|(synonym, _)| *synonym == lower) {
        return Some((*known).to_owned()).filter(|known| !known.is_empty());
    }
    let (program, fs_type) = lower.split_once('.').unwrap_or((&lower, ""));
    match program {
        "fsck" => return Some("check".into()),
        "mkfs" if Registry::default().find(fs_type).is_some() => return Some(format!("mkfs -t {fs_type}")),
        _ => {}
    }
    alike(&lower, tree)
}

/// Returns the name of a command of `tree` that is spelt like `name`. The first letter of a word is rarely wrong.
fn alike(name: &str, tree: &Command) -> Option<String> {
    let visible = tree.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> =
        visible.flat_map(|command| command.get_all_aliases().chain([command.get_name()])).collect();
    let first = name.chars().next();
    similar(name, names.into_iter().filter(|known| known.chars().next() == first)).map(str::to_owned)
}

/// Returns whether `name` is an address or the name of a file, which follows the command.
fn is_image(name: &str) -> bool {
    name.contains(":/") || Path::new(name).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_suggested_only_for_a_synonym_or_a_similar_name() {
        let tree = crate::help::command();
        for (name, known) in [
            ("unmount", Some("umount")),
            ("Delete", Some("rm")),
            ("repair", Some("check -y")),
            ("extract", Some("cp -a")),
            ("fsck.ext4", Some("check")),
            ("mkfs.ext4", Some("mkfs -t ext4")),
            ("mkfs.vfat2", Some("mkfs.vfat")),
            ("completion", Some("completions")),
            ("sha256", Some("sha256sum")),
            ("lss", Some("ls")),
            ("exit", None),
            ("mkfs.nosuch", None),
            ("ext.img", None),
            ("tac", None),
            ("copmlete", None),
        ] {
            assert_eq!(meant(name, &tree).as_deref(), known, "{name}");
        }
    }

    #[test]
    fn each_synonym_stands_for_a_command_and_is_none() {
        let tree = crate::help::command();
        for (synonym, known) in SYNONYMS {
            assert!(tree.find_subcommand(synonym).is_none(), "{synonym}");
            let command = known.split(' ').next().unwrap();
            let is_known =
                known.is_empty() || known.starts_with('-') || tree.find_subcommand(command).is_some();
            assert!(is_known, "{known}");
        }
    }
}
