//! Empty library; the programs of this package are its examples.
