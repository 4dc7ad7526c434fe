//! The help of the command: the overview, the topics, and what each subcommand's help shows beside its options.
//!
//! `page` has what help and manual pages share: examples, exit statuses and variables of a subcommand, which its file in
//! `commands` lists. `topics` has the topics, such as `layout` in `layout.txt`.

pub mod page;
pub mod topics;

use clap::{Arg, ArgAction, ColorChoice, Command, CommandFactory};

use crate::cli::Cli;
use crate::commands::GROUPS;
use page::page;

/// The forms of addresses, for the overview and the main manual page.
pub const ADDRESSES: &str = "\
Addresses:
  disk.img:/etc/fstab      a path in an image (raw, qcow2, VHD, VHDX, VMDK, VDI,
                           Android sparse or block device; also compressed:
                           .bz2, .gz, .lzma, .xz, .zst)
  disk.img@2:/etc/fstab    a path in partition 2. @name=NAME selects a partition
                           by its name, @label=LABEL by the label of its file
                           system, @uuid=UUID by its UUID or the UUID of its
                           file system. @+OFFSET selects the volume that starts
                           at this byte of the image
  disk.qcow2%NAME:/etc     a path in a snapshot, by its name or ID; also
                           disk.qcow2%NAME@PART
  disk.img:#12             the inode with number 12
  fuse:COMMAND:/PATH       a file of a FUSE server: fuse:sshfs host:/dir:/
  nfs://HOST/EXPORT:/PATH  a file of an NFS export
  host:a:/b                a host path that looks like an address";

const MORE: &str = "\
Help:
  obento help COMMAND      a command and its options
  obento help options      the options of every command
  obento help layout       the layout format of `obento build --disk`

Exit status: 0 if everything succeeded, 1 if an operand failed, 2 for wrong usage or if nothing could be done. \
Some commands, such as cat and cp, also use 1 if nothing could be done. \
`obento check` uses the exit statuses of fsck(8).";

const SEE_OPTIONS: &str = "Run 'obento help options' for the options of every command.";

/// Returns the command tree as the parser and the help use it.
pub fn command() -> Command {
    let command = finish(Cli::command().color(ColorChoice::Auto), "", true);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\nOptions:\n{{options}}{{after-help}}",
        overview(&command)
    );
    command.after_help(format!("{ADDRESSES}\n\n{MORE}")).help_template(template)
}

/// Returns the command tree for manual pages, whose texts have no examples yet.
pub fn command_for_man() -> Command {
    finish(Cli::command(), "", false)
}

/// Completes `command` and its subcommands; `path` contains its words after `obento`. Hides the options of every
/// command and adds `-h` if the letter is free. For help, also appends the examples.
fn finish(command: Command, path: &str, is_help: bool) -> Command {
    let has_h = command.get_arguments().any(|arg| arg.get_short() == Some('h'));
    let help = Arg::new("help").long("help").action(ArgAction::Help).help("Print help").display_order(1000);
    let command = command
        .mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg })
        .arg(if has_h { help } else { help.short('h') });
    let command = if is_help && !path.is_empty() { with_examples(command, path) } else { command };
    command.mut_subcommands(|sub| {
        let path = format!("{path} {}", sub.get_name()).trim_start().to_owned();
        finish(sub, &path, is_help)
    })
}

fn with_examples(command: Command, path: &str) -> Command {
    let mut text = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
    if let Some(page) = page(GROUPS, path) {
        if !page.examples.is_empty() {
            text.push_str("Examples:\n");
            for (line, what) in page.examples {
                text.push_str(&format!("  {line}\n      {what}\n"));
            }
            text.push('\n');
        }
        if let Some(exit) = page.exit {
            text.push_str("Exit status:\n");
            exit.iter().for_each(|(code, what)| text.push_str(&format!("  {code:<4} {what}\n")));
            text.push('\n');
        }
    }
    command.after_help(text + SEE_OPTIONS)
}

/// The subcommands of `command` in their groups, a line each.
fn overview(command: &Command) -> String {
    let mut text = String::new();
    for (group, pages) in GROUPS {
        text.push_str(&format!("\n{group}:\n"));
        for (name, _) in *pages {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            text.push_str(&format!("  {name:<12} {}\n", about.cloned().unwrap_or_default()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::page::{MAIN, Page};
    use super::topics::{LAYOUT, options};
    use super::*;
    use crate::commands::shell::words::parse;

    /// Calls `check` with each page and the words of its subcommand.
    fn each(mut check: impl FnMut(&[&str], &Page)) {
        fn below(path: &[&str], page: &Page, check: &mut impl FnMut(&[&str], &Page)) {
            check(path, page);
            page.subcommands.iter().for_each(|(name, page)| below(&[path, &[*name]].concat(), page, check));
        }
        check(&[], &MAIN);
        for (name, page) in GROUPS.iter().flat_map(|(_, pages)| *pages) {
            below(&[*name], page, &mut check);
        }
    }

    #[test]
    fn each_command_has_a_page_and_each_page_a_command() {
        fn check(command: &Command, path: &str) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let path = format!("{path} {}", sub.get_name()).trim_start().to_owned();
                assert!(page(GROUPS, &path).is_some(), "{path}");
                check(sub, &path);
            }
        }
        let command = Cli::command();
        check(&command, "");
        each(|path, _| {
            let found = path.iter().try_fold(&command, |command, word| command.find_subcommand(word));
            assert!(found.is_some(), "{path:?}");
        });
    }

    #[test]
    fn each_example_is_a_command_line_that_parses() {
        each(|path, page| {
            assert!(!page.examples.is_empty(), "{path:?}");
            for (line, _) in page.examples {
                let own = line.split(" | ").find(|part| part.starts_with("obento ")).unwrap();
                let own = own.split(" > ").next().unwrap().replace('~', "");
                let statements = parse(own.as_bytes()).unwrap();
                assert!(crate::cli::parse(statements[0].words.clone()).is_ok(), "{line}");
                assert!(line.len() <= 78, "{line}");
            }
        });
    }

    #[test]
    fn the_overview_names_each_command_once_in_lines_of_80_columns() {
        let command = command();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, pages)| *pages).map(|(name, _)| *name).collect();
        let known: BTreeSet<&str> =
            command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(Command::get_name).collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), known);
        assert_eq!(grouped.len(), known.len());
        for line in overview(&command)
            .lines()
            .chain(ADDRESSES.lines())
            .chain(MORE.split("Exit status").take(1).flat_map(str::lines))
            .chain(LAYOUT.lines())
        {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn the_options_of_every_command_are_not_in_the_help_of_a_command() {
        let mut command = command();
        command.build();
        for sub in command.get_subcommands_mut() {
            let help = sub.render_long_help().to_string();
            assert!(!help.contains("--no-replay"), "{help}");
            assert!(help.contains("obento help options"), "{help}");
        }
        let options = options().render_long_help().to_string();
        assert!(options.contains("--no-replay") && options.contains("--json"), "{options}");
    }

    #[test]
    fn help_is_h_where_the_letter_is_free() {
        let command = command();
        let short = |name: &str| {
            let sub = command.find_subcommand(name).unwrap();
            let help = sub.get_arguments().find(|arg| arg.get_id() == "help").unwrap();
            help.get_short()
        };
        assert_eq!(["cp", "mount", "ls", "mkfs.fat"].map(short), [Some('h'), Some('h'), None, None]);
    }

    #[test]
    fn help_names_no_file_of_the_repository() {
        fn check(command: &mut Command) {
            let help = command.render_long_help().to_string();
            // The ending of a report's name is not a file.
            let is_page = |word: &str| {
                word.trim_end_matches(['.', ',', ')']).len() > 3 && word.replace(".md5", "").contains(".md")
            };
            assert!(!help.contains("docs/") && !help.split_whitespace().any(is_page), "{help}");
            command.get_subcommands_mut().for_each(check);
        }
        let mut command = command();
        command.build();
        check(&mut command);
        assert!(!LAYOUT.contains(".md"));
    }
}
