//! The treatment of holes and zeros in a copy.

use obento_block::BlockDevice;
use obento_host::{DataSink, HostError, SinkError};

use crate::data::CHUNK;

/// The treatment of holes and zeros in a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Holes {
    /// Copies holes as holes and zeros as zeros.
    #[default]
    Keep,
    /// Copies holes as holes. Zeros become holes too, in units of 4096 bytes.
    Make,
    /// Copies holes as zeros, which take space.
    Fill,
}

/// The block size of most host file systems. A shorter hole saves no space.
const BLOCK: usize = 4096;

/// A sink that passes bytes and holes to another sink.
pub struct HoleSink<'a> {
    /// The sink that receives the bytes.
    pub sink: &'a mut dyn DataSink,
    /// The treatment of holes and zeros.
    pub holes: Holes,
}

impl DataSink for HoleSink<'_> {
    fn hole(&mut self, mut len: u64) -> Result<(), HostError> {
        if self.holes != Holes::Fill {
            return self.sink.hole(len);
        }
        let zeros = vec![0; CHUNK.min(usize::try_from(len).unwrap_or(CHUNK))];
        while len > 0 {
            let part = usize::try_from(len).unwrap_or(CHUNK).min(zeros.len());
            self.sink.bytes(&zeros[..part])?;
            len -= part as u64;
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        if self.holes != Holes::Make {
            return self.sink.bytes(bytes);
        }
        let is_hole = |block: &[u8]| block.len() == BLOCK && block.iter().all(|&byte| byte == 0);
        let mut rest = bytes;
        while let Some(first) = rest.chunks(BLOCK).next() {
            let hole = is_hole(first);
            let run = rest.chunks(BLOCK).take_while(|block| is_hole(block) == hole);
            let (run, after) = rest.split_at(run.map(<[u8]>::len).sum());
            if hole {
                self.sink.hole(run.len() as u64)?
            } else {
                self.sink.bytes(run)?
            };
            rest = after;
        }
        Ok(())
    }

    fn device(&mut self, device: &dyn BlockDevice, mut offset: u64, mut len: u64) -> Result<(), SinkError> {
        if self.holes != Holes::Make {
            return self.sink.device(device, offset, len);
        }
        let mut buffer = vec![0; CHUNK.min(usize::try_from(len).unwrap_or(CHUNK))];
        while len > 0 {
            let part = usize::try_from(len).unwrap_or(CHUNK).min(buffer.len());
            device.read_at(offset, &mut buffer[..part])?;
            self.bytes(&buffer[..part])?;
            offset += part as u64;
            len -= part as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records its calls: `h` and `b` with lengths.
    #[derive(Default)]
    struct Notes(String);

    impl DataSink for Notes {
        fn hole(&mut self, len: u64) -> Result<(), HostError> {
            self.0 += &format!("h{len} ");
            Ok(())
        }
        fn bytes(&mut self, bytes: &[u8]) -> Result<(), HostError> {
            self.0 += &format!("b{} ", bytes.len());
            Ok(())
        }
        fn device(&mut self, _: &dyn BlockDevice, _: u64, len: u64) -> Result<(), SinkError> {
            self.0 += &format!("d{len} ");
            Ok(())
        }
    }

    fn reported(holes: Holes) -> String {
        let mut bytes = vec![0; 5 * BLOCK + 10];
        bytes[2 * BLOCK + 7] = 1;
        let device = obento_block::MemDevice::new(bytes.clone());
        let mut notes = Notes::default();
        let mut sink = HoleSink { sink: &mut notes, holes };
        sink.bytes(&bytes).unwrap();
        sink.hole(100).unwrap();
        sink.device(&device, 0, 3 * BLOCK as u64).unwrap();
        notes.0
    }

    #[test]
    fn zeros_become_holes_and_holes_zeros_as_asked() {
        assert_eq!(reported(Holes::Keep), "b20490 h100 d12288 ");
        assert_eq!(reported(Holes::Make), "h8192 b4096 h8192 b10 h100 h8192 b4096 ");
        assert_eq!(reported(Holes::Fill), "b20490 b100 d12288 ");
    }
}
