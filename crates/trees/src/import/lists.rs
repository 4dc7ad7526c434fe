//! Access control lists that name users and groups. Their numbers are looked up in the image after the
//! import.

use obento_base::{Ino, Mode};
use obento_driver::XattrMode;
use obento_host::Xattr;
use obento_host::tar::Member;
use obento_open::Volume;
use obento_open::volume::Owners;
use obento_vfs::Caller;

use super::problem::MemberProblem;
use crate::acls;
use crate::copy::{Observer, Problem, ProblemReason};

/// Maximum number of members whose lists wait.
pub(super) const MAX: usize = 1 << 20;

/// The lists of a member, in text form.
pub(super) struct Waiting {
    ino: Ino,
    path: Vec<u8>,
    words: Vec<Xattr>,
}

impl Waiting {
    pub fn new(ino: Ino, member: &Member) -> Self {
        let mut words = member.xattrs.to_vec();
        words.retain(|xattr| acls::has_words(std::slice::from_ref(xattr)));
        Self { ino, path: member.path.clone(), words }
    }
}

/// Sets the lists, with the numbers of the users and groups of `volume`. Returns how many problems were
/// reported to `observer`.
pub(super) fn set(lists: Vec<Waiting>, volume: &Volume, observer: &mut dyn Observer) -> u64 {
    if lists.is_empty() {
        return 0;
    }
    let owners = Owners::read(volume);
    let mut problems = 0;
    for Waiting { ino, path, mut words } in lists {
        let mut why = acls::resolve(&mut words, &owners);
        // A list that is equivalent to the mode is not stored.
        acls::settle(&mut Mode::new(0), &mut words);
        let vfs = volume.vfs();
        // A later member may have replaced this one.
        let Ok(node) = vfs.node(ino) else { continue };
        for xattr in words {
            let set = vfs.set_xattr(&Caller::Owner, &node, &xattr.name, &xattr.value, XattrMode::Set);
            why.extend(set.err().map(|error| error.to_string()));
        }
        if !why.is_empty() {
            problems += 1;
            let trouble = ProblemReason::Member(MemberProblem::Names(why.join(", ")));
            observer.problem(&Problem { path, trouble });
        }
    }
    problems
}
