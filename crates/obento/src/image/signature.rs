//! What bytes look like that no driver recognises, so that a person learns what the image is instead.
//!
//! Sources: the `magic` of each format as libblkid (util-linux, libblkid/src/superblocks) and file(1) know it.

use std::fmt;

use obento_base::Result;
use obento_block::BlockDevice;

/// What some bytes look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looks {
    /// In words, to be read after "looks like".
    pub like: &'static str,
    /// What can be done, as a whole sentence without its full stop; empty if nothing is known.
    pub advice: &'static str,
}

/// A mark of a format.
struct Mark {
    /// Byte offset.
    at: u64,
    bytes: &'static [u8],
    looks: Looks,
}

const fn mark(at: u64, bytes: &'static [u8], like: &'static str, advice: &'static str) -> Mark {
    Mark { at, bytes, looks: Looks { like, advice } }
}

/// How many bytes from the start are compared.
const WINDOW: u64 = 68 << 10;

const NO_DRIVER: &str = "obento reads ext2, ext3, ext4 and FAT so far";
const DAMAGED: &str = "its boot sector is damaged";
const CONVERT: &str = "convert it first: `qemu-img convert -O raw IMAGE disk.img`";
const UNPACK: &str = "unpack it first, and name the image that is in it";
const OTHER_TABLE: &str = "name what is in it by its place: IMAGE@+OFFSET";

/// The marks, the more telling first: most bytes, then the ones that only stand in an otherwise unknown start.
#[rustfmt::skip]
const MARKS: &[Mark] = &[
    mark(0, b"LUKS\xba\xbe", "a LUKS encrypted volume", "open it first, as root: `cryptsetup open IMAGE NAME`, then use /dev/mapper/NAME"),
    mark(3, b"-FVE-FS-", "a BitLocker encrypted volume", "open it first, as root: `cryptsetup bitlkOpen IMAGE NAME`"),
    mark(512, b"LABELONE", "an LVM physical volume", "activate it first, as root: `vgchange -ay`, then use /dev/GROUP/VOLUME"),
    mark(0, b"LABELONE", "an LVM physical volume", "activate it first, as root: `vgchange -ay`, then use /dev/GROUP/VOLUME"),
    mark(4096, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID", "assemble it first, as root: `mdadm --assemble`"),
    mark(0, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID", "assemble it first, as root: `mdadm --assemble`"),
    mark(0, b"XFSB", "an XFS file system", NO_DRIVER),
    mark(0x10040, b"_BHRfS_M", "a Btrfs file system", NO_DRIVER),
    mark(0, b"hsqs", "a SquashFS file system", "`unsquashfs` unpacks it"),
    mark(0, b"sqsh", "a SquashFS file system", "`unsquashfs` unpacks it"),
    mark(1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system", NO_DRIVER),
    mark(1024, b"\x10\x20\xf5\xf2", "an F2FS file system", NO_DRIVER),
    mark(0x8001, b"CD001", "an ISO 9660 file system (a CD or DVD)", NO_DRIVER),
    mark(0x8001, b"BEA01", "a UDF file system (a DVD)", NO_DRIVER),
    mark(3, b"NTFS    ", "an NTFS file system", NO_DRIVER),
    mark(3, b"EXFAT   ", "an exFAT file system", NO_DRIVER),
    mark(82, b"FAT32   ", "a FAT32 file system", DAMAGED),
    mark(54, b"FAT16   ", "a FAT16 file system", DAMAGED),
    mark(54, b"FAT12   ", "a FAT12 file system", DAMAGED),
    mark(54, b"FAT     ", "a FAT file system", DAMAGED),
    mark(32, b"NXSB", "an APFS container", NO_DRIVER),
    mark(1024, b"H+\0\x04", "an HFS+ file system", NO_DRIVER),
    mark(1024, b"HX\0\x05", "an HFS+ file system", NO_DRIVER),
    mark(1024, b"BD", "an HFS file system", NO_DRIVER),
    mark(0x8000, b"JFS1", "a JFS file system", NO_DRIVER),
    mark(0x10034, b"ReIsEr", "a ReiserFS file system", NO_DRIVER),
    mark(1030, b"\x34\x34", "a NILFS2 file system", NO_DRIVER),
    mark(4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "a bcachefs file system", NO_DRIVER),
    mark(4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9", "a bcachefs file system", NO_DRIVER),
    mark(0x2000 + 1372, b"\x54\x19\x01\x00", "a UFS file system", NO_DRIVER),
    mark(0x10000 + 1372, b"\x19\x01\x54\x19", "a UFS2 file system", NO_DRIVER),
    mark(0, b"\x45\x3d\xcd\x28", "a cramfs file system", NO_DRIVER),
    mark(0, b"-rom1fs-", "a romfs file system", NO_DRIVER),
    mark(4086, b"SWAPSPACE2", "Linux swap space", "it holds no files"),
    mark(4086, b"SWAP-SPACE", "Linux swap space", "it holds no files"),
    mark(0, b"KDMV", "a VMDK disk image", CONVERT),
    mark(0, b"# Disk DescriptorFile", "the description of a VMDK disk image", CONVERT),
    mark(64, b"\x7f\x10\xda\xbe", "a VirtualBox disk image (VDI)", CONVERT),
    mark(0, b"vhdxfile", "a VHDX disk image", CONVERT),
    mark(0, b"conectix", "a VHD disk image", CONVERT),
    mark(0, b"WithoutFreeSpace", "a Parallels disk image", CONVERT),
    mark(0, b"QFI\xfb", "a qcow disk image", CONVERT),
    mark(0, b"\x3a\xff\x26\xed", "an Android sparse image", "convert it first: `simg2img IMAGE disk.img`"),
    mark(0, b"\x1f\x8b", "gzip compressed data", UNPACK),
    mark(0, b"\xfd7zXZ\0", "xz compressed data", UNPACK),
    mark(0, b"\x28\xb5\x2f\xfd", "Zstandard compressed data", UNPACK),
    mark(0, b"BZh", "bzip2 compressed data", "unpack it first: `bunzip2 --keep IMAGE`"),
    mark(0, b"\x04\x22\x4d\x18", "LZ4 compressed data", "unpack it first: `lz4 -d IMAGE`"),
    mark(0, b"\x02\x21\x4c\x18", "LZ4 compressed data", "unpack it first: `lz4 -d IMAGE`"),
    mark(0, b"\x1f\x9d", "data of compress(1)", "unpack it first: `gzip -d IMAGE`"),
    mark(0, b"\x1f\xa0", "data of compress(1)", "unpack it first: `gzip -d IMAGE`"),
    mark(0, b"\x1f\x1e", "data of pack(1)", "unpack it first: `gzip -d IMAGE`"),
    mark(0, b"\x89LZO\0\r\n\x1a\n", "lzop compressed data", UNPACK),
    mark(0, b"LZIP", "lzip compressed data", UNPACK),
    mark(0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", UNPACK),
    mark(0, b"PK\x03\x04", "a ZIP archive", UNPACK),
    mark(0, b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    mark(257, b"ustar", "a tar archive", "`tar -x` unpacks it"),
    mark(0, b"070701", "a cpio archive", "`cpio -i` unpacks it"),
    mark(0, b"ER\x02\0", "an Apple partition map", OTHER_TABLE),
    mark(512, b"\x57\x45\x56\x82", "a BSD disk label", OTHER_TABLE),
    mark(0, b"\x7fELF", "an ELF program", "name a disk image"),
    mark(0, b"\xff\xd8\xff", "a JPEG picture", "name a disk image"),
    mark(0, b"\x89PNG\r\n", "a PNG picture", "name a disk image"),
    mark(0, b"GIF8", "a GIF picture", "name a disk image"),
    mark(0, b"%PDF-", "a PDF document", "name a disk image"),
    mark(0, b"MZ", "a Windows program", "name a disk image"),
    mark(0, b"#!", "a script", "name a disk image"),
    mark(0, b"SQLite format 3\0", "an SQLite database", "name a disk image"),
];

const ZEROS: Looks = Looks { like: "nothing: its first bytes are all zeros", advice: "" };
const TEXT: Looks = Looks { like: "text", advice: "name a disk image" };
const BOOT: Looks = Looks {
    like: "a boot sector without a file system that is known",
    advice: "if a file system starts further on, name its place: IMAGE@+OFFSET",
};
const NOTHING: Looks = Looks {
    like: "nothing that is known",
    advice: "if its super block is lost, name a copy: `--superblock 32768` (or 8193, 98304, 163840); if a file system starts further on, its place: IMAGE@+OFFSET",
};

impl Looks {
    /// Looks at the start of `device`. Errors: those of the device.
    pub fn of(device: &dyn BlockDevice) -> Result<Self> {
        let len = usize::try_from(device.len().min(WINDOW)).unwrap_or(0);
        let mut start = vec![0; len];
        device.read_at(0, &mut start)?;
        Ok(Self::of_bytes(&start))
    }

    /// Returns what a stream that begins with `start` is packed as, if it has to be unpacked before obento can read it.
    pub(crate) fn packed(start: &[u8]) -> Option<&'static str> {
        let is_packing = |mark: &&Mark| mark.at == 0 && mark.looks.advice.starts_with("unpack it first");
        let mut packings = MARKS.iter().filter(is_packing);
        packings.find(|mark| start.starts_with(mark.bytes)).map(|mark| mark.looks.like)
    }

    /// Whether nothing tells what it is, so that it may be a file system whose first blocks are lost.
    pub fn may_be_anything(&self) -> bool {
        [ZEROS, BOOT, NOTHING].contains(self)
    }

    fn of_bytes(start: &[u8]) -> Self {
        let has = |at: u64, bytes: &[u8]| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            start.get(at..).is_some_and(|rest| rest.starts_with(bytes))
        };
        if let Some(mark) = MARKS.iter().find(|mark| has(mark.at, mark.bytes)) {
            return mark.looks;
        }
        let is_text = |&byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..);
        match start {
            _ if start.iter().all(|&byte| byte == 0) => ZEROS,
            _ if start.iter().take(512).all(is_text) => TEXT,
            _ if has(510, b"\x55\xaa") => BOOT,
            _ => NOTHING,
        }
    }
}

/// Prints `an XFS file system; obento reads ext2, ext3, ext4 and FAT so far`.
impl fmt::Display for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.like)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    #[test]
    fn every_mark_is_found_where_it_stands_and_lies_within_the_window() {
        for mark in MARKS {
            let mut bytes = vec![0; usize::try_from(WINDOW).unwrap()];
            let at = usize::try_from(mark.at).unwrap();
            bytes[at..at + mark.bytes.len()].copy_from_slice(mark.bytes);
            let looks = Looks::of(&MemDevice::read_only(bytes)).unwrap();
            assert_eq!(looks, mark.looks, "{}", mark.looks.like);
        }
    }

    #[test]
    fn what_has_no_mark_is_told_from_zeros_and_text() {
        let like = |bytes: &[u8]| Looks::of_bytes(bytes).like;
        assert!(like(&[0; 100]).contains("zeros"));
        assert_eq!(like(b"hello\n"), "text");
        assert!(like(&[1, 0, 2]).contains("nothing that is known"));
        let mut boot = [0; 512];
        boot[510..].copy_from_slice(b"\x55\xaa");
        assert!(like(&boot).contains("boot sector"));
    }
}
