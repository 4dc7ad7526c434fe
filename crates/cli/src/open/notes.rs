//! The notes about a volume that was opened.

use obento::driver::{Access, Notice};
use obento::{Image, Registry, Volume};

use super::reports::can_be_repaired;
use crate::messages::Messages;
use crate::report::{HELP, is_of_super_block, notice, shell_word};

/// An open volume, as notes describe it.
#[derive(Clone, Copy)]
pub struct NotedVolume<'a> {
    pub volume: &'a Volume,
    pub image: &'a Image,
    pub access: Access,
}

impl NotedVolume<'_> {
    /// Returns the text of each notice. Damaged structures share one text, which names the first of them.
    pub fn texts(&self, notices: &[Notice]) -> Vec<String> {
        grouped_notes(notices, self.access, self.image, self.volume.info().probe.fs_type)
    }

    /// Prints the notes about the volume, which messages name `shown`, with the commands that repair it.
    pub fn print(&self, shown: &[u8], registry: &Registry, messages: &Messages) {
        let info = self.volume.info();
        let copy = info.notices.iter().any(|notice| matches!(notice, Notice::BackupSuperBlock { .. }));
        let is_reported = |notice: &Notice| match notice {
            Notice::Hidden { .. } => false,
            // The notice of the copy says so.
            Notice::Damaged(error) => !(copy && is_of_super_block(error)),
            _ => true,
        };
        let notices: Vec<Notice> = info.notices.into_iter().filter(is_reported).collect();
        let can_repair = self.image.super_block().is_none() && can_be_repaired(self.volume, registry);
        let image = shell_word(shown);
        let repair = |options: &str| {
            let first = format!("copy the files first: obento recover {image} DIR");
            format!("{HELP}{first}; then 'obento {options}check -y {image}' repairs all damage")
        };
        for (notice, text) in grouped(&notices, self.access, self.image, info.probe.fs_type) {
            let help = match notice {
                Notice::BackupSuperBlock { .. } if can_repair => {
                    repair(&format!("--fs-type {} ", info.probe.fs_type))
                }
                // The notice of the copy has the same hint.
                Notice::Damaged(_) if can_repair && !copy => repair(""),
                _ => String::new(),
            };
            messages.note(shown, text + &help);
        }
    }
}

/// Returns the text of each notice about a volume of the type `fs_type`. Damaged structures share one text, which names
/// the first of them.
pub fn grouped_notes(notices: &[Notice], access: Access, image: &Image, fs_type: &str) -> Vec<String> {
    grouped(notices, access, image, fs_type).into_iter().map(|(_, text)| text).collect()
}

fn grouped<'n>(
    notices: &'n [Notice],
    access: Access,
    image: &Image,
    fs_type: &str,
) -> Vec<(&'n Notice, String)> {
    let is_damage = |notice: &Notice| matches!(notice, Notice::Damaged(_));
    let damaged = notices.iter().filter(|notice| is_damage(notice)).count();
    let first = notices.iter().position(is_damage);
    let shown = notices.iter().enumerate().filter(|(at, each)| !is_damage(each) || Some(*at) == first);
    let text = |each: &Notice| match each {
        Notice::Damaged(error) if damaged > 1 => {
            format!("{damaged} structures are damaged; the first is: {error}; the undamaged rest is shown")
        }
        each => notice(each, access, image, fs_type),
    };
    shown.map(|(_, each)| (each, text(each))).collect()
}
