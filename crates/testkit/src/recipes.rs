//! Volumes of the types that the kernel engine opens, created and checked by Debian programs. The tests of the engine
//! read, write and damage them, and docs/engine.md describes them. For a type that no program creates, a module here
//! does, from the published format.

use std::fs::{self, File};
use std::path::Path;

use crate::oracle::{Oracle, require, shell};

mod affs;
mod befs;
mod bytes;
mod efs;
mod hfsplus;
mod hpfs;
mod nodes;
mod omfs;
mod qnx6;
mod sysv;
mod ufs_hp;
mod vxfs;

/// The creation time of an empty volume: 2020-01-01.
const MADE: u32 = 1_577_836_800;

/// The way in which `image` is created.
#[derive(Clone, Copy, Debug)]
pub enum Make {
    /// A shell command line, with an empty file of [`megabytes`](Recipe::megabytes), and `tree` if the volume contains
    /// it.
    Shell(&'static str),
    /// A function that returns an empty volume of this number of bytes.
    Empty(fn(usize) -> Vec<u8>),
    /// A function that returns a volume with the contents of `tree`.
    Filled(fn(&Path) -> Vec<u8>),
}

/// A way to create a volume.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// The type.
    pub name: &'static str,
    /// The program that creates the volume; `None` for a function.
    pub program: Option<&'static str>,
    /// The command or function.
    pub make: Make,
    /// The size in MiB; 0 if the program decides.
    pub megabytes: usize,
    /// The command by which the type's own program checks `image`, if one exists.
    pub check: Option<&'static str>,
    /// A command that changes `tree` to one that the type can store.
    pub fit: &'static str,
    /// The attributes that the type stores: fields of find(1), `-printf`.
    pub kept: &'static str,
    /// A remark about the other attributes.
    pub remark: &'static str,
}

/// Path, kind, mode, owner, length, link target and time, in the syntax of find(1).
pub const ALL: &str = "%P %y %m %U %G %s %l %Ts";
/// Times are those of the creation, or not stored.
const NO_TIMES: &str = "%P %y %m %U %G %s %l";
/// The type has no links, or does not store their times.
const NO_LINKS: &str = "rm tree/link";

const PLAIN: Recipe = Recipe {
    name: "",
    program: None,
    make: Make::Shell("true"),
    megabytes: 0,
    check: None,
    fit: "true",
    kept: ALL,
    remark: "",
};

const fn empty(name: &'static str, program: &'static str, line: &'static str, megabytes: usize) -> Recipe {
    Recipe { name, program: Some(program), make: Make::Shell(line), megabytes, ..PLAIN }
}

const fn ours(name: &'static str, make: fn(usize) -> Vec<u8>, megabytes: usize) -> Recipe {
    Recipe { name, make: Make::Empty(make), megabytes, ..PLAIN }
}

const fn filled(name: &'static str, make: fn(&Path) -> Vec<u8>) -> Recipe {
    Recipe { name, make: Make::Filled(make), ..PLAIN }
}

/// Empty volumes, as small as the cases allow. The kernel engine fills them.
pub const EMPTY: &[Recipe] = &[
    Recipe { check: Some("xfs_repair -n image"), ..empty("xfs", "mkfs.xfs", "mkfs.xfs -q image", 310) },
    Recipe { check: Some("btrfs check image"), ..empty("btrfs", "mkfs.btrfs", "mkfs.btrfs -q image", 130) },
    Recipe { check: Some("fsck.f2fs image"), ..empty("f2fs", "mkfs.f2fs", "mkfs.f2fs -q image", 64) },
    Recipe { check: Some("fsck.jfs -n image"), ..empty("jfs", "mkfs.jfs", "mkfs.jfs -q image", 32) },
    Recipe {
        check: Some("reiserfsck -q -y --check image"),
        ..empty("reiserfs", "mkfs.reiserfs", "mkfs.reiserfs -qff image", 64)
    },
    Recipe {
        check: Some("fsck.gfs2 -n image"),
        ..empty("gfs2", "mkfs.gfs2", "mkfs.gfs2 -O -q -p lock_nolock -j 1 -J 8 image", 40)
    },
    // Segments of 1 MiB, because otherwise the volume has too few.
    empty("nilfs2", "mkfs.nilfs2", "mkfs.nilfs2 -q -B 256 image", 64),
    Recipe { check: Some("fsck.minix -f image"), ..empty("minix", "mkfs.minix", "mkfs.minix -3 image", 16) },
    Recipe { check: Some("fsck.minix -f image"), ..empty("minix2", "mkfs.minix", "mkfs.minix -2 image", 16) },
    Recipe { check: Some("fsck.minix -f image"), ..empty("minix1", "mkfs.minix", "mkfs.minix -1 image", 16) },
    empty("udf", "mkudffs", "mkudffs image", 32),
    Recipe {
        fit: NO_LINKS,
        kept: "%P %y %s %Ts",
        remark: "no owners, modes and links",
        ..empty("hfs", "hformat", "hformat image", 16)
    },
    Recipe {
        fit: "rm -r tree/link tree/dir tree/many",
        remark: "no directories and links",
        ..empty("bfs", "mkfs.bfs", "mkfs.bfs image", 8)
    },
    ours("hfsplus", hfsplus::empty, 64),
    ours("affs", affs::empty, 16),
    ours("sysv", sysv::empty, 8),
    Recipe { fit: NO_LINKS, remark: "no times of links", ..ours("hpfs", hpfs::empty, 16) },
];

/// Volumes with the contents of `tree`, created by a program or by a module here.
pub const FILLED: &[Recipe] = &[
    Recipe {
        kept: NO_TIMES,
        remark: "times are those of the creation",
        ..empty("xfs", "mkfs.xfs", "mkfs.xfs -q -p proto image", 310)
    },
    empty("btrfs", "mkfs.btrfs", "mkfs.btrfs -q -r tree image", 130),
    empty("f2fs", "sload.f2fs", "mkfs.f2fs -q image && sload.f2fs -P -f tree image", 64),
    Recipe {
        fit: NO_LINKS,
        kept: "%P %y %s",
        remark: "no owners, modes, links and times",
        ..empty("hfs", "hcopy", HCOPY, 16)
    },
    empty("hfsplus", "xorriso", XORRISO, 0),
    empty("iso9660", "genisoimage", "genisoimage -quiet -R -o image tree", 0),
    empty("squashfs", "mksquashfs", "mksquashfs tree image -noappend -no-progress -quiet", 0),
    empty("erofs", "mkfs.erofs", "mkfs.erofs image tree", 0),
    Recipe {
        kept: NO_TIMES,
        remark: "no times",
        ..empty("cramfs", "mkfs.cramfs", "mkfs.cramfs tree image", 0)
    },
    Recipe {
        kept: "%P %y %s %l",
        remark: "no owners, modes and times",
        ..empty("romfs", "genromfs", "genromfs -f image -d tree", 0)
    },
    empty("ufs1", "makefs", "makefs -t ffs -o version=1 image tree", 0),
    empty("ufs", "makefs", UFS2, 0),
    filled("efs", efs::filled),
    filled("qnx6", qnx6::filled),
    Recipe {
        fit: NO_LINKS,
        kept: "%P %y %s %Ts",
        remark: "no owners, modes and links",
        ..filled("omfs", omfs::filled)
    },
    filled("ufs-hp", ufs_hp::filled),
    Recipe { fit: "cp -p tree/small tree/é€", ..filled("befs", befs::filled) },
    filled("vxfs", vxfs::filled),
];

/// hcopy(1) copies only single folders.
const HCOPY: &str = "hformat image && hmkdir :dir :dir:deep :dir:deep:er :many && cd tree && hcopy -r empty small five : \
    && hcopy -r dir/big :dir && hcopy -r dir/deep/er/a :dir:deep:er && hcopy -r many/* :many";

/// xorriso(1) creates an HFS+ volume next to an ISO 9660 one. It is extracted. Its header, 1024 bytes from its start,
/// contains the block size at 40 and the number of blocks at 44 (Apple, Technical Note TN1150).
const XORRISO: &str = r#"
xorriso -as mkisofs -quiet -R -hfsplus -o iso tree
at=$(LC_ALL=C grep -obUaP 'H\+\x00\x04' iso | head -n 1 | cut -d : -f 1)
number() { od -An -tu4 --endian=big -j $((at + $1)) -N 4 iso; }
tail -c +$((at - 1024 + 1)) iso | head -c $(($(number 40) * $(number 44))) > image"#;

/// makefs(8) puts the super block of UFS2 at 8 KiB, the place of UFS1, but Linux looks for it at 64 KiB
/// (fs/ufs/ufs_fs.h, `SBLOCK_UFS2`). With blocks of 32 KiB, the second block contains a copy of it and the third the
/// cylinder group. The cylinder group is moved to the place of the copy, and the super block to the old place of the
/// group. The super block is changed accordingly: `fs_sblkno` at 8 and `fs_cblkno` at 12, in fragments of 4 KiB, and
/// `fs_sblockloc` at 1000.
const UFS2: &str = r"
makefs -t ffs -o version=2,bsize=32768,fsize=4096 made tree
cp made image
dd if=made of=image bs=32k skip=2 seek=1 count=1 conv=notrunc
dd if=/dev/zero of=image bs=32k seek=2 count=1 conv=notrunc
dd if=made of=image bs=8k skip=1 seek=8 count=1 conv=notrunc
put() { dd of=image bs=1 seek=$((65536 + $1)) conv=notrunc; }
printf '\020\0\0\0\010\0\0\0' | put 8
printf '\0\0\001\0\0\0\0\0' | put 1000";

impl Recipe {
    /// Returns the recipe of `name` among `recipes`.
    pub fn of(recipes: &'static [Self], name: &str) -> &'static Self {
        recipes.iter().find(|recipe| recipe.name == name).expect("a type that has a recipe")
    }

    /// Returns whether the kernel, and the program if one is required, are installed.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let program = self.program.map(Oracle::Program);
        require(&[Oracle::Program("linux.uml")].into_iter().chain(program).collect::<Vec<_>>())
    }

    /// Creates `image` in `folder`.
    pub fn make(&self, folder: &Path) {
        let (image, len) = (folder.join("image"), self.megabytes << 20);
        match self.make {
            Make::Empty(make) => fs::write(image, make(len)).expect("room"),
            Make::Filled(make) => fs::write(image, make(&folder.join("tree"))).expect("room"),
            Make::Shell(line) => {
                if len > 0 {
                    File::create(image).and_then(|image| image.set_len(len as u64)).expect("room");
                }
                shell(folder, line).expect("the program is here");
            }
        }
    }

    /// Creates an image, and returns its bytes.
    pub fn bytes(&self, folder: &Path) -> Vec<u8> {
        self.make(folder);
        fs::read(folder.join("image")).expect("it was made")
    }

    /// Checks `image` in `folder` by the type's own program.
    pub fn check(&self, folder: &Path) {
        if let Some(check) = self.check {
            shell(folder, check).expect("it finds nothing wrong");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether Linux would find the type at this position.
    fn is_at(name: &str, at: usize, bytes: &[u8]) -> bool {
        let Recipe { make: Make::Empty(make), megabytes, .. } = Recipe::of(EMPTY, name) else {
            panic!("{name}")
        };
        let image = make(megabytes << 20);
        assert_eq!(image.len(), megabytes << 20);
        image[at..].starts_with(bytes)
    }

    #[test]
    fn a_new_image_has_the_requested_length_and_its_type_is_reported() {
        assert!(is_at("hfsplus", 1024, b"H+\0\x04"));
        // The copy of its header.
        assert!(is_at("hfsplus", (64 << 20) - 1024, b"H+\0\x04"));
        assert!(is_at("affs", 0, b"DOS\x03"));
        assert!(is_at("hpfs", 0x2000, &[0x49, 0xe8, 0x95, 0xf9]));
        assert!(is_at("sysv", 512 + 504, &0xfd18_7e20_u32.to_le_bytes()));
    }
}
