//! Closed sets of PyTorch: element types, devices, layouts and memory formats.

use std::fmt;
use std::str::FromStr;

macro_rules! closed_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$vdoc])* #[doc = concat!("`torch.", $text, "`")] $variant,)*
        }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name without the `torch.` in front.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "torch.{}", self.name())
            }
        }

        impl FromStr for $name {
            type Err = ();

            /// Reads the name with or without the `torch.` in front.
            fn from_str(text: &str) -> Result<Self, ()> {
                match text.strip_prefix("torch.").unwrap_or(text) {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(()),
                }
            }
        }
    };
}

closed_set! {
    /// The type of a tensor's elements. Source: `torch.dtype`.
    DType {
        Float64 = "float64",
        Float32 = "float32",
        Float16 = "float16",
        BFloat16 = "bfloat16",
        Float8E4M3Fn = "float8_e4m3fn",
        Float8E4M3FnUz = "float8_e4m3fnuz",
        Float8E5M2 = "float8_e5m2",
        Float8E5M2FnUz = "float8_e5m2fnuz",
        Float8E8M0Fnu = "float8_e8m0fnu",
        Float4E2M1FnX2 = "float4_e2m1fn_x2",
        Complex128 = "complex128",
        Complex64 = "complex64",
        Complex32 = "complex32",
        Int64 = "int64",
        Int32 = "int32",
        Int16 = "int16",
        Int8 = "int8",
        UInt64 = "uint64",
        UInt32 = "uint32",
        UInt16 = "uint16",
        UInt8 = "uint8",
        Bool = "bool",
        QInt8 = "qint8",
        QUInt8 = "quint8",
        QInt32 = "qint32",
        QUInt4x2 = "quint4x2",
        QUInt2x4 = "quint2x4",
        Bits1x8 = "bits1x8",
        Bits2x4 = "bits2x4",
        Bits4x2 = "bits4x2",
        Bits8 = "bits8",
        Bits16 = "bits16",
    }
}

closed_set! {
    /// The storage layout of a tensor. Source: `torch.layout`.
    Layout {
        Strided = "strided",
        SparseCoo = "sparse_coo",
        SparseCsr = "sparse_csr",
        SparseCsc = "sparse_csc",
        SparseBsr = "sparse_bsr",
        SparseBsc = "sparse_bsc",
        MkldnnLayout = "_mkldnn",
        Jagged = "jagged",
    }
}

closed_set! {
    /// The order of strides. Source: `torch.memory_format`.
    MemoryFormat {
        Contiguous = "contiguous_format",
        ChannelsLast = "channels_last",
        ChannelsLast3d = "channels_last_3d",
        Preserve = "preserve_format",
    }
}

closed_set! {
    /// The kind of a device. Source: `torch.device.type`.
    DeviceKind {
        Cpu = "cpu",
        Cuda = "cuda",
        Meta = "meta",
        Mps = "mps",
        Xpu = "xpu",
        Hpu = "hpu",
        Xla = "xla",
        Mtia = "mtia",
        Vulkan = "vulkan",
        PrivateUse1 = "privateuseone",
    }
}

/// A device: its kind, and its index where one is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// The kind of device.
    pub kind: DeviceKind,
    /// Its number among the devices of that kind.
    pub index: Option<u16>,
}

impl fmt::Display for Device {
    /// As `str(torch.device(...))`: `cuda:1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        self.index.map_or(Ok(()), |index| write!(f, ":{index}"))
    }
}

impl FromStr for Device {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, index) = match text.split_once(':') {
            Some((kind, index)) => (kind, Some(index.parse().map_err(drop)?)),
            None => (text, None),
        };
        Ok(Self {
            kind: kind.parse()?,
            index,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for &dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
        }
        let device = Device {
            kind: DeviceKind::Cuda,
            index: Some(1),
        };
        assert_eq!(device.to_string(), "cuda:1");
        assert_eq!("cuda:1".parse(), Ok(device));
        assert_eq!("cuda:x".parse::<Device>(), Err(()));
        assert_eq!(
            "torch.channels_last".parse(),
            Ok(MemoryFormat::ChannelsLast)
        );
    }
}
