//! The passes by name.

use crate::autocast::Autocast;
use crate::canonical::CanonicalOrder;
use crate::common_subexpressions::CommonSubexpressions;
use crate::conv_bn::FoldBatchNorms;
use crate::dead_code::DeadCode;
use crate::division::MultiplyByInverses;
use crate::dropout::RemoveDropout;
use crate::functional::{FunctionsToModules, ModulesToFunctions};
use crate::no_ops::RemoveNoOps;
use crate::normal_form::{Keywords, Operators};
use crate::pass::Pass;
use crate::products::MergeProducts;
use crate::reinplace::Reinplace;

/// All passes, with their default options.
#[must_use]
pub fn registry() -> Vec<Box<dyn Pass>> {
    vec![
        Box::new(RemoveDropout::default()),
        Box::new(RemoveNoOps),
        Box::new(MultiplyByInverses),
        Box::new(MergeProducts::default()),
        Box::new(ModulesToFunctions::default()),
        Box::new(FunctionsToModules::default()),
        Box::new(FoldBatchNorms::default()),
        Box::new(Keywords),
        Box::new(Operators),
        Box::new(CommonSubexpressions::default()),
        Box::new(DeadCode::default()),
        Box::new(Reinplace::default()),
        Box::new(Autocast::default()),
        Box::new(CanonicalOrder),
    ]
}
