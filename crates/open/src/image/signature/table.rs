//! The signatures of types without a driver, and of files that are not disk images.
//!
//! Sources: for types that claim a device, `magics` and the checks behind them in libblkid (util-linux,
//! libblkid/src/superblocks, a file per type). For disk image formats, archives and other files, file(1) and
//! the specification of each format.

use super::{Bytes, DataDescription, DataForm};

/// The position of the bytes of a signature.
#[derive(Clone, Copy)]
pub enum SignaturePosition {
    /// Bytes from the start of the device.
    Start(u64),
    /// Bytes before the end of the device.
    End(u64),
    /// The result of this function for the length of the device in bytes.
    Of(fn(u64) -> Option<u64>),
}

/// A type and its signatures. Any one of the signatures is sufficient.
pub struct Signature {
    /// The name of the type in libblkid, or our name for a file that claims no device.
    pub name: &'static str,
    pub looks: DataDescription,
    pub places: &'static [(SignaturePosition, &'static [u8])],
    /// A further condition.
    pub also: fn(&Bytes<'_>) -> bool,
}

/// Creates the signature of a type that no driver opens.
const fn unsupported(
    name: &'static str,
    shown: &'static str,
    like: &'static str,
    places: &'static [(SignaturePosition, &'static [u8])],
) -> Signature {
    Signature {
        name,
        looks: DataDescription { name: shown, like, form: DataForm::Unsupported, advice: UNSUPPORTED },
        places,
        also: |_| true,
    }
}

/// Creates the signature of a type with its own advice.
const fn advised(
    name: &'static str,
    like: &'static str,
    advice: &'static str,
    places: &'static [(SignaturePosition, &'static [u8])],
) -> Signature {
    described(name, like, DataForm::Other, advice, places)
}

/// Creates the signature of a volume that another program opens as a device of its own.
const fn mapped(
    name: &'static str,
    like: &'static str,
    advice: &'static str,
    places: &'static [(SignaturePosition, &'static [u8])],
) -> Signature {
    described(name, like, DataForm::Mapped, advice, places)
}

/// Creates the signature of compressed data or of an archive.
const fn packed(
    name: &'static str,
    like: &'static str,
    advice: &'static str,
    places: &'static [(SignaturePosition, &'static [u8])],
) -> Signature {
    described(name, like, DataForm::Packed, advice, places)
}

/// Creates the signature of a disk image that must be converted.
const fn converted(
    name: &'static str,
    like: &'static str,
    advice: &'static str,
    places: &'static [(SignaturePosition, &'static [u8])],
) -> Signature {
    described(name, like, DataForm::DiskImage, advice, places)
}

const fn described(
    name: &'static str,
    like: &'static str,
    form: DataForm,
    advice: &'static str,
    places: &'static [(SignaturePosition, &'static [u8])],
) -> Signature {
    Signature { name, looks: DataDescription { name, like, form, advice }, places, also: |_| true }
}

const UNSUPPORTED: &str = "see 'obento types'";
const ASSEMBLE: &str = "assemble it first, as root: 'mdadm --assemble'";
const CONVERT: &str = "convert it first: 'qemu-img convert -O raw IMAGE disk.img'";
const UNPACK: &str = "unpack it first, and name the image that is in it";
const OTHER_TABLE: &str = "name a file system in it by its first byte: IMAGE@+OFFSET";
const NAME_IMAGE: &str = "name a disk image";
const NO_FILES: &str = "name an image that contains files";

use SignaturePosition::{End, Of, Start};

/// Returns the position of the super block of a RAID member of version 0.90: drivers/md/md_p.h
/// `MD_NEW_SIZE_SECTORS`.
fn md_old(len: u64) -> Option<u64> {
    len.checked_sub(len % (64 << 10))?.checked_sub(64 << 10)
}

/// Returns the position of the super block of version 1.0: 8 KiB before the end, aligned to 4 KiB.
fn md_end(len: u64) -> Option<u64> {
    len.checked_sub(8 << 10).map(|at| at - at % 4096)
}

/// Returns whether `major_version` of a RAID member is valid: 0 behind the last blocks, 1 elsewhere.
fn is_md(bytes: &Bytes<'_>) -> bool {
    let version = |at: Option<u64>, version: &[u8]| at.is_some_and(|at| bytes.has(at, version));
    let (little, big) = (b"\xfc\x4e\x2b\xa9\0\0\0\0", b"\xa9\x2b\x4e\xfc\0\0\0\0");
    let old = md_old(bytes.len());
    let of_1 = b"\xfc\x4e\x2b\xa9\x01\0\0\0";
    version(old, little)
        || version(old, big)
        || [Some(0), Some(4096), md_end(bytes.len())].into_iter().any(|at| version(at, of_1))
}

/// Returns whether at least four of the 128 uberblocks of the labels have the magic number, in either byte
/// order (libblkid, zfs.c `ZFS_WANT`).
fn is_zfs(bytes: &Bytes<'_>) -> bool {
    let label = 256 << 10;
    let end = bytes.len() - bytes.len() % label;
    let labels = [Some(0), Some(label), end.checked_sub(2 * label), end.checked_sub(label)];
    // A label has a list of names and values in XDR encoding before the uberblocks.
    let labels = labels.into_iter().flatten().filter(|at| bytes.has(at + (16 << 10), b"\x01"));
    let uberblocks = labels.flat_map(|at| bytes.every(at + (128 << 10), 1024, 128));
    let magic = [[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c]];
    uberblocks.filter(|first| magic.contains(first)).nth(3).is_some()
}

/// Returns whether `version` of the header is 1, in either byte order (libblkid, swap.c `swap_set_info`). The
/// previous format had no header.
fn is_swap(bytes: &Bytes<'_>) -> bool {
    bytes.has(4086, b"SWAP-SPACE") || bytes.has(1024, b"\x01\0\0\0") || bytes.has(1024, b"\0\0\0\x01")
}

/// Returns whether the boot sector leads to the first record of the master file table (libblkid, ntfs.c
/// `__probe_ntfs`).
fn is_ntfs(bytes: &Bytes<'_>) -> bool {
    let [Some(sector), Some(per_cluster), Some(table)] =
        [(11, 2), (13, 1), (48, 8)].map(|(at, len)| bytes.number(at, len))
    else {
        return false;
    };
    // Above 128, the number is the negated power of two.
    let per_cluster = match per_cluster {
        0..=128 => Some(per_cluster),
        _ => u32::try_from(256 - per_cluster).ok().and_then(|power| 1_u64.checked_shl(power)),
    };
    let cluster = per_cluster.and_then(|per_cluster| per_cluster.checked_mul(sector));
    let at = cluster.and_then(|cluster| cluster.checked_mul(table));
    at.is_some_and(|at| bytes.has(at, b"FILE"))
}

/// Returns whether the version is before 4. Version 4 has a driver.
fn is_old_squashfs(bytes: &Bytes<'_>) -> bool {
    let version = if bytes.has(0, b"sqsh") { b"\0\x04" } else { b"\x04\0" };
    !bytes.has(28, version)
}

/// The types that claim a device. Each has a name in libblkid.
#[rustfmt::skip]
pub const CLAIMING: &[Signature] = &[
    Signature {
        also: is_md,
        ..advised("linux_raid_member", "a member of a Linux RAID", ASSEMBLE, &[
            (Start(0), b"\xfc\x4e\x2b\xa9"), (Start(4096), b"\xfc\x4e\x2b\xa9"),
            (Of(md_end), b"\xfc\x4e\x2b\xa9"), (Of(md_old), b"\xfc\x4e\x2b\xa9"), (Of(md_old), b"\xa9\x2b\x4e\xfc"),
        ])
    },
    advised("ddf_raid_member", "a member of a RAID (DDF)", ASSEMBLE, &[(End(512), b"\xde\x11\xde\x11"), (End(257 * 512), b"\xde\x11\xde\x11")]),
    advised("isw_raid_member", "a member of a RAID (Intel)", ASSEMBLE, &[(End(1024), b"Intel Raid ISM Cfg Sig. ")]),
    unsupported("lsi_mega_raid_member", "LSI MegaRAID", "a member of a RAID (LSI)", &[(End(512), b"$XIDE$")]),
    unsupported("nvidia_raid_member", "NVIDIA RAID", "a member of a RAID (NVIDIA)", &[(End(1024), b"NVIDIA  ")]),
    unsupported("promise_fasttrack_raid_member", "Promise FastTrak RAID", "a member of a RAID (Promise)", &[
        (End(63 * 512), PROMISE), (End(255 * 512), PROMISE), (End(256 * 512), PROMISE), (End(16 * 512), PROMISE),
    ]),
    unsupported("bcache", "bcache", "a bcache device", &[(Start(4096 + 24), b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")]),
    unsupported("bcachefs", "bcachefs", "a bcachefs file system", &[(Start(4096 + 24), b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef")]),
    unsupported("ceph_bluestore", "Ceph BlueStore", "a Ceph BlueStore device", &[(Start(0), b"bluestore block device")]),
    unsupported("drbd", "DRBD", "a DRBD device", &[
        (End(4096 - 60), b"\x83\x74\x02\x67"), (End(4096 - 60), b"\x83\x74\x02\x68"), (End(4096 - 60), b"\x83\x74\x02\x6b"),
    ]),
    unsupported("drbdmanage_control_volume", "DRBD Manage", "a control volume of DRBD Manage", &[(Start(0), b"$DRBDmgr=q")]),
    unsupported("drbdproxy_datalog", "DRBD Proxy", "a log of DRBD Proxy", &[(Start(0), b"DRBDdlh*")]),
    advised("LVM2_member", "an LVM physical volume", "activate it first, as root: 'vgchange -ay', then use /dev/GROUP/VOLUME", &[
        (Start(0), b"LABELONE"), (Start(512), b"LABELONE"), (Start(1024), b"LABELONE"), (Start(1536), b"LABELONE"),
    ]),
    unsupported("DM_snapshot_cow", "a device-mapper snapshot", "the changes of a device-mapper snapshot", &[(Start(0), b"SnAp")]),
    unsupported("DM_verity_hash", "dm-verity", "the hashes of dm-verity", &[(Start(0), b"verity\0\0")]),
    mapped("DM_integrity", "a dm-integrity device", "open it as root: 'integritysetup open IMAGE NAME', then use /dev/mapper/NAME", &[(Start(0), b"integrt\0")]),
    mapped("crypto_LUKS", "a LUKS encrypted volume", "open it as root: 'cryptsetup open IMAGE NAME', then use /dev/mapper/NAME", &[
        (Start(0), b"LUKS\xba\xbe"), (Start(0x4000), b"SKUL\xba\xbe"), (Start(0x8000), b"SKUL\xba\xbe"), (Start(0x1_0000), b"SKUL\xba\xbe"),
        (Start(0x2_0000), b"SKUL\xba\xbe"), (Start(0x4_0000), b"SKUL\xba\xbe"), (Start(0x8_0000), b"SKUL\xba\xbe"),
        (Start(0x10_0000), b"SKUL\xba\xbe"), (Start(0x20_0000), b"SKUL\xba\xbe"), (Start(0x40_0000), b"SKUL\xba\xbe"),
    ]),
    unsupported("VMFS_volume_member", "VMFS", "a member of a VMFS volume", &[(Start(1 << 20), b"\x0d\xd0\x01\xc0")]),
    unsupported("ubi", "UBI", "a UBI image of flash memory", &[(Start(0), b"UBI#")]),
    unsupported("vdo", "VDO", "a VDO device", &[(Start(0), b"dmvdo001")]),
    unsupported("stratis", "Stratis", "a Stratis device", &[(Start(516), b"!Stra0tis\x86\xff\x02^\x41rh"), (Start(9 * 512 + 4), b"!Stra0tis\x86\xff\x02^\x41rh")]),
    mapped("BitLocker", "a BitLocker encrypted volume", "open it as root: 'cryptsetup bitlkOpen IMAGE NAME'", &[(Start(3), b"-FVE-FS-")]),
    advised("swsuspend", "a hibernation image", NO_FILES, &[
        (Start(4086), b"S1SUSPEND"), (Start(4086), b"S2SUSPEND"), (Start(4086), b"ULSUSPEND"), (Start(4086), b"LINHIB0001"),
    ]),
    Signature {
        also: is_swap,
        ..advised("swap", "Linux swap space", NO_FILES, &[
            (Start(4086), b"SWAPSPACE2"), (Start(4086), b"SWAP-SPACE"), (Start(8182), b"SWAPSPACE2"), (Start(16374), b"SWAPSPACE2"),
            (Start(32758), b"SWAPSPACE2"), (Start(65526), b"SWAPSPACE2"),
        ])
    },
    unsupported("xfs", "XFS", "an XFS file system", &[(Start(0), b"XFSB")]),
    unsupported("exfs", "EXFS", "an EXFS file system", &[(Start(0), b"EXFS")]),
    unsupported("reiserfs", "ReiserFS", "a ReiserFS file system", &[(Start(0x1_0034), b"ReIsErFs"), (Start(0x1_0034), b"ReIsEr2Fs"), (Start(0x1_0034), b"ReIsEr3Fs")]),
    unsupported("reiser4", "Reiser4", "a Reiser4 file system", &[(Start(0x1_0000), b"ReIsEr4")]),
    unsupported("jfs", "JFS", "a JFS file system", &[(Start(0x8000), b"JFS1")]),
    unsupported("udf", "UDF", "a UDF file system (a DVD)", &[(Start(0x8001), b"BEA01")]),
    unsupported("iso9660", "ISO 9660", "an ISO 9660 file system (a CD or DVD)", &[(Start(0x8001), b"CD001")]),
    unsupported("high_sierra", "High Sierra", "a High Sierra file system (an old CD)", &[(Start(0x8009), b"CDROM")]),
    Signature { also: is_zfs, ..unsupported("zfs_member", "ZFS", "a member of a ZFS pool", &[]) },
    unsupported("hfsplus", "HFS+", "an HFS+ file system", &[(Start(1024), b"H+\0\x04"), (Start(1024), b"HX\0\x05")]),
    unsupported("hfs", "HFS", "an HFS file system", &[(Start(1024), b"BD")]),
    unsupported("ufs1", "UFS", "a UFS file system", &[(Start(0x2000 + 1372), b"\x54\x19\x01\x00")]),
    unsupported("ufs", "UFS2", "a UFS2 file system", &[(Start(0x1_0000 + 1372), b"\x19\x01\x54\x19")]),
    Signature { also: is_ntfs, ..unsupported("ntfs", "NTFS", "an NTFS file system", &[(Start(3), b"NTFS    ")]) },
    unsupported("ReFS", "ReFS", "a ReFS file system", &[(Start(0), b"\0\0\0ReFS\0")]),
    unsupported("cramfs", "cramfs", "a cramfs file system", &[(Start(0), b"\x45\x3d\xcd\x28")]),
    unsupported("romfs", "romfs", "a romfs file system", &[(Start(0), b"-rom1fs-")]),
    unsupported("ocfs", "OCFS", "an OCFS file system", &[(Start(8192), b"OracleCFS")]),
    unsupported("ocfs2", "OCFS2", "an OCFS2 file system", &[(Start(1024), b"OCFSV2"), (Start(2048), b"OCFSV2"), (Start(4096), b"OCFSV2"), (Start(8192), b"OCFSV2")]),
    unsupported("oracleasm", "Oracle ASM", "an Oracle ASM disk", &[(Start(32), b"ORCLDISK")]),
    unsupported("squashfs", "SquashFS", "a SquashFS file system", &[(Start(0), b"hsqs")]),
    Signature { also: is_old_squashfs, ..unsupported("squashfs3", "SquashFS before version 4", "an old SquashFS file system", &[(Start(0), b"sqsh"), (Start(0), b"hsqs")]) },
    unsupported("nss", "NetWare NSS", "a NetWare NSS volume", &[(Start(4096), b"SPB5")]),
    unsupported("btrfs", "Btrfs", "a Btrfs file system", &[(Start(0x10040), b"_BHRfS_M")]),
    unsupported("ubifs", "UBIFS", "a UBIFS image of flash memory", &[(Start(0), b"\x31\x18\x10\x06")]),
    unsupported("VMFS", "VMFS", "a VMFS file system", &[(Start(2 << 20), b"\x5e\xf1\xab\x2f")]),
    unsupported("nilfs2", "NILFS2", "a NILFS2 file system", &[(Start(1024), b"\x02\0\0\0\0\0\x34\x34")]),
    unsupported("exfat", "exFAT", "an exFAT file system", &[(Start(3), b"EXFAT   ")]),
    unsupported("f2fs", "F2FS", "an F2FS file system", &[(Start(1024), b"\x10\x20\xf5\xf2")]),
    unsupported("mpool", "mpool", "an mpool device", &[(Start(0), b"mpoolDev")]),
    unsupported("apfs", "APFS", "an APFS container", &[(Start(32), b"NXSB")]),
    unsupported("zonefs", "zonefs", "a zonefs device", &[(Start(0), b"SFOZ")]),
    unsupported("erofs", "EROFS", "an EROFS file system", &[(Start(1024), b"\xe2\xe1\xf5\xe0")]),
];

const PROMISE: &[u8] = b"Promise Technology, Inc.";
const DAMAGED: &str = "a program such as testdisk can rebuild the damaged boot sector";

/// The types that claim no device. They are reported if nothing else is recognised.
#[rustfmt::skip]
pub const FILES: &[Signature] = &[
    advised("FAT32", "a FAT32 file system", DAMAGED, &[(Start(82), b"FAT32   ")]),
    advised("FAT16", "a FAT16 file system", DAMAGED, &[(Start(54), b"FAT16   ")]),
    advised("FAT12", "a FAT12 file system", DAMAGED, &[(Start(54), b"FAT12   "), (Start(54), b"FAT     ")]),
    converted("VMDK", "a VMDK disk image", CONVERT, &[(Start(0), b"KDMV"), (Start(0), b"COWD")]),
    converted("VMDK", "the description of a VMDK disk image", CONVERT, &[(Start(0), b"# Disk DescriptorFile")]),
    converted("VDI", "a VirtualBox disk image (VDI)", CONVERT, &[(Start(64), b"\x7f\x10\xda\xbe")]),
    converted("VHDX", "a VHDX disk image", CONVERT, &[(Start(0), b"vhdxfile")]),
    converted("VHD", "a VHD disk image", CONVERT, &[(Start(0), b"conectix")]),
    converted("Parallels", "a Parallels disk image", CONVERT, &[(Start(0), b"WithoutFreeSpace"), (Start(0), b"WithouFreSpacExt")]),
    converted("qcow", "a qcow disk image", CONVERT, &[(Start(0), b"QFI\xfb")]),
    converted("QED", "a QED disk image", CONVERT, &[(Start(0), b"QED\0")]),
    converted("Bochs", "a Bochs disk image", CONVERT, &[(Start(0), b"Bochs Virtual HD Image")]),
    converted("DMG", "an Apple disk image (DMG)", CONVERT, &[(End(512), b"koly")]),
    converted("EWF", "an EWF (EnCase) disk image", "convert it first: 'ewfexport IMAGE'", &[(Start(0), b"EVF\x09\x0d\x0a\xff\0"), (Start(0), b"EVF2\x0d\x0a\x81\0")]),
    converted("AFF", "an AFF disk image", "convert it first: 'affconvert -r IMAGE'", &[(Start(0), b"AFF10\r\n\0")]),
    converted("simg", "an Android sparse image", "convert it first: 'simg2img IMAGE disk.img'", &[(Start(0), b"\x3a\xff\x26\xed")]),
    packed("gzip", "gzip compressed data", UNPACK, &[(Start(0), b"\x1f\x8b")]),
    packed("xz", "xz compressed data", UNPACK, &[(Start(0), b"\xfd7zXZ\0")]),
    packed("Zstandard", "Zstandard compressed data", UNPACK, &[(Start(0), b"\x28\xb5\x2f\xfd")]),
    packed("bzip2", "bzip2 compressed data", "unpack it first: 'bunzip2 --keep IMAGE'", &[(Start(0), b"BZh")]),
    packed(
        "LZ4",
        "LZ4 compressed data",
        "unpack it first: 'lz4 -d IMAGE'",
        &[(Start(0), b"\x04\x22\x4d\x18"), (Start(0), b"\x02\x21\x4c\x18")],
    ),
    packed(
        "compress",
        "data of compress(1)",
        "unpack it first: 'gzip -d IMAGE'",
        &[(Start(0), b"\x1f\x9d"), (Start(0), b"\x1f\xa0")],
    ),
    packed("pack", "data of pack(1)", "unpack it first: 'gzip -d IMAGE'", &[(Start(0), b"\x1f\x1e")]),
    packed("lzop", "lzop compressed data", UNPACK, &[(Start(0), b"\x89LZO\0\r\n\x1a\n")]),
    packed("lzip", "lzip compressed data", UNPACK, &[(Start(0), b"LZIP")]),
    packed("7-Zip", "a 7-Zip archive", UNPACK, &[(Start(0), b"7z\xbc\xaf\x27\x1c")]),
    packed("ZIP", "a ZIP archive", UNPACK, &[(Start(0), b"PK\x03\x04")]),
    packed("RAR", "a RAR archive", UNPACK, &[(Start(0), b"Rar!\x1a\x07")]),
    advised("tar", "a tar archive", "unpack the archive: tar -xf IMAGE", &[(Start(257), b"ustar")]),
    advised("cpio", "a cpio archive", "unpack the archive: cpio -i", &[(Start(0), b"070701")]),
    advised("mac", "an Apple partition map", OTHER_TABLE, &[(Start(0), b"ER\x02\0")]),
    advised("bsd", "a BSD disk label", OTHER_TABLE, &[(Start(512), b"\x57\x45\x56\x82")]),
    advised("ELF", "an ELF program", NAME_IMAGE, &[(Start(0), b"\x7fELF")]),
    advised("JPEG", "a JPEG picture", NAME_IMAGE, &[(Start(0), b"\xff\xd8\xff")]),
    advised("PNG", "a PNG picture", NAME_IMAGE, &[(Start(0), b"\x89PNG\r\n")]),
    advised("GIF", "a GIF picture", NAME_IMAGE, &[(Start(0), b"GIF8")]),
    advised("PDF", "a PDF document", NAME_IMAGE, &[(Start(0), b"%PDF-")]),
    advised("PE", "a Windows program", NAME_IMAGE, &[(Start(0), b"MZ")]),
    advised("script", "a script", NAME_IMAGE, &[(Start(0), b"#!")]),
    advised("SQLite", "an SQLite database", NAME_IMAGE, &[(Start(0), b"SQLite format 3\0")]),
];
