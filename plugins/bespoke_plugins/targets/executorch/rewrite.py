# SPDX-License-Identifier: Apache-2.0
"""Graph pass on an ATen make_fx graph so XNNPACK takes (nearly) all of it:
 mm/addmm -> 3-D bmm (XNNPACK bmm takes a run-time RHS), mean/sum over last dim -> bmm with constant ones,
 split -> slice, pow(3)->mul, mul/div Scalar -> mul.Tensor const, t -> permute, no-op clone/to removal."""
import torch
aten = torch.ops.aten
def xnn_friendly(gm):
    g = gm.graph
    meta = lambda n: (n.meta["val"] if "val" in n.meta else n.meta["tensor_meta"])
    consts = {}
    def const(t, key):
        nm = "c_" + key
        if not hasattr(gm, nm): gm.register_buffer(nm, t)
        return nm
    for n in list(g.nodes):
        if n.op != "call_function": continue
        C = g.call_function
        with g.inserting_before(n):
            def view(a, s): return C(aten.view.default, (a, [int(v) for v in s]))
            def bmm(a, b, sa, sb): return C(aten.bmm.default, (view(a, (1, *sa)), view(b, (1, *sb))))
            new = None; t = n.target
            if t == aten.mm.default:
                a, b = n.args; new = view(bmm(a, b, meta(a).shape, meta(b).shape), meta(n).shape)
            elif t == aten.addmm.default:
                bias, a, b = n.args; new = C(aten.add.Tensor, (view(bmm(a, b, meta(a).shape, meta(b).shape), meta(n).shape), bias))
            elif t in (aten.sum.dim_IntList, aten.mean.dim) and len(meta(n.args[0]).shape) >= 2 and [d % len(meta(n.args[0]).shape) for d in n.args[1]] == [len(meta(n.args[0]).shape) - 1] and len(n.args) > 2 and n.args[2]:
                a = n.args[0]; s = meta(a).shape; R = 1
                for v in s[:-1]: R *= v
                val = 1.0 / s[-1] if t == aten.mean.dim else 1.0
                k = g.get_attr(const(torch.full((s[-1], 1), val), f"{'mean' if t == aten.mean.dim else 'sum'}_{s[-1]}"))
                new = view(bmm(a, k, (R, s[-1]), (s[-1], 1)), meta(n).shape)
            elif t == aten.split.Tensor:
                w = n.args[1]; d = n.args[2]
                for u in list(n.users):
                    i = u.args[1]
                    with g.inserting_before(u): u.replace_all_uses_with(C(aten.slice.Tensor, (n.args[0], d, i*w, (i+1)*w)))
                    g.erase_node(u)
                g.erase_node(n); continue
            elif t == aten.t.default: new = C(aten.permute.default, (n.args[0], [1, 0]))
            elif t == aten.pow.Tensor_Scalar and n.args[1] in (2, 3):
                x = n.args[0]; new = C(aten.mul.Tensor, (x, x))
                if n.args[1] == 3: new = C(aten.mul.Tensor, (new, x))
            elif t in (aten.mul.Scalar, aten.div.Scalar):
                v = float(n.args[1]); new = C(aten.mul.Tensor, (n.args[0], v if t == aten.mul.Scalar else 1.0 / v))
            elif t == aten.expand.default and tuple(meta(n).shape) == tuple(meta(n.args[0]).shape): new = n.args[0]
            elif t == aten.expand.default and all(u.target in (aten.mul.Tensor, aten.div.Scalar, aten.mul.Scalar) for u in n.users): new = n.args[0]
            elif t == aten._to_copy.default and meta(n).dtype == meta(n.args[0]).dtype: new = n.args[0]
            if new is None: continue
            if isinstance(new, torch.fx.Node) and "val" not in new.meta and "tensor_meta" not in new.meta:
                new.meta = dict(n.meta)
            n.replace_all_uses_with(new); g.erase_node(n)
    g.eliminate_dead_code(); g.lint(); gm.recompile(); return gm
