//! Enums that are stored as one byte.

/// Declares an enum with the code of each variant in stored bytes, and what reads and lists them: none can be left out of a
/// table. A code that a release has written is never given to another variant.
macro_rules! stored_codes {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident { $($(#[$doc:meta])+ $variant:ident = $code:literal,)+ }
    ) => {
        $(#[$meta])*
        #[repr(u8)]
        $visibility enum $name { $($(#[$doc])+ $variant = $code,)+ }

        impl $name {
            /// All variants, in the order in which they are declared.
            pub const ALL: [$name; [$($code),+].len()] = [$($name::$variant),+];

            /// Returns its byte in stored form.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// Returns the variant with that code; an error says that no variant of this version has it.
            pub fn from_code(code: u8) -> Result<$name, $crate::object::CodecError> {
                let found = $name::ALL.into_iter().find(|variant| variant.code() == code);
                found.ok_or($crate::object::CodecError::Code(code))
            }
        }
    };
}

pub(crate) use stored_codes;
