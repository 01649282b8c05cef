"""The auditor finds the slips of the published tables, each by name."""

from __future__ import annotations

from collections import Counter
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from holdfast.core.errors import UserError
from holdfast_evidence.printed_tables import AuditFinding, audit, read_table

FACTS = Path(__file__).parents[4].parent / "shared" / "facts"

FMR_1 = """dataset,model,standard_accuracy,perturbed_accuracy,fmr
MNIST,LeNet,99.09,27.78,28.04
CIFAR10,ResNet18,95.38,52.34,54.88
9-class IN,ResNet18,92.3,27.95,30.28
ImageNet,ResNet50,76.26,33.15,43.47
ImageNet,ViT,82.4,41.65,50.55
ImageNet,DeiT,78.57,43.25,55.05
ImageNet,Twins,80.53,48.52,60.25
ImageNet,Visformer,79.88,47.82,59.87
ImageNet,Swin,81.67,56.95,69.73
ImageNet,ConvNeXt,82.05,47.68,58.11
"""
FMR_3 = """model,adm_pa,adm_fmr,iddpm_pa,iddpm_fmr,vdvae_pa,vdvae_fmr
ResNet50,33.43,43.84,32.51,42.63,31.37,41.14
ANT,32.95,43.21,33.62,44.08,32.33,42.39
SIN,33.23,43.58,33.11,43.43,32.26,42.32
"""
FMR_13 = """class,standard_accuracy,validation_rate,fmr
Dog,93.33,95.33,17.98
Cat,96.67,94.00,31.55
Frog,85.33,80.67,20.34
Turtle,84.67,78.67,29.03
Bird,91.33,96.00,28.13
Primate,96.00,48.00,62.21
Fish,94.00,76.67,45.33
Crab,96.00,87.33,19.87
Insect,93.33,78.00,33.88
Total,92.30,81.63,30.28
"""
SCENARIOS = "blur_background,blur_object,image_g,image_b,image_grey,image_r,random_background,segmented_image"
ACCURACIES = f"""experiment,model,params_m,{SCENARIOS}
EX1,ResNet50,25.6,90.97,88.17,84.42,86.98,92.13,89.03,22.41,68.55
EX1,VGG-16,138.4,89.92,89.91,78.64,70.46,81.48,80.68,24.58,49.62
EX1,DenseNet121,8.1,93.77,88.92,87.39,87.33,93.23,88.21,26.41,69.67
EX1,ViT,86.6,88.44,90.77,65.87,62.82,70.69,66.53,17.21,49.01
EX1,Swin,87.76,80.97,81.57,64.59,65.91,69.28,64.41,19.43,44.57
EX2,ResNet50,25.6,83.52,80.24,83.61,84.45,84.71,80.4,53.91,85.76
EX2,VGG-16,138.4,74.85,71.54,74.18,76.26,77.58,69.91,70.25,73.27
EX2,DenseNet121,8.1,90.79,86.57,88.92,89.96,90.44,87.37,69.58,91.6
EX2,ViT,86.56,71.51,70.21,74.77,75.96,75.8,71.14,38.01,78.69
EX2,Swin,87.76,72.81,75.02,81.05,81.96,81.63,76.42,13.23,80.64
"""
SQUARES = f"""model,kind,{SCENARIOS},variance_printed,score_printed
ResNet50,external,0.18,0.5,1.17,0.68,0.1,0.38,53.04,7.12,0.0902,0.8985
ResNet50,internal,0.1,0,0.11,0.17,0.2,0,6.96,0.3,0.0112,0.8985
DenseNet121,external,0.13,0.72,1.0,1.01,0.17,0.84,50.39,7.69,0.0885,0.9062
DenseNet121,internal,0.21,0,0.07,0.14,0.18,0.01,2.77,0.29,0.0052,0.9062
VGG-16,external,0.15,0.15,2.3,5.45,1.52,1.72,47.93,19.53,0.1125,0.8845
VGG-16,internal,0.33,0.06,0.26,0.51,0.72,0.01,0.01,0.17,0.0029,0.8845
ViT,external,0.25,0.07,7.6,9.38,5.18,7.24,58.11,19.74,0.1536,0.8196
ViT,internal,0.51,0.72,0.15,0.07,0.08,0.57,16.54,0,0.0266,0.8196
Swin,external,0.96,0.84,6.84,6.17,4.61,6.94,50.87,21.33,0.1408,0.6305
Swin,internal,0.02,56.28,0.48,0.61,0.56,0.05,37.1,65.03,0.2287,0.6305
"""


def table(text: str) -> pd.DataFrame:
    return pd.read_csv(StringIO(text), dtype=str, keep_default_na=False)


def kinds(found: list[AuditFinding]) -> Counter[str]:
    return Counter(one.kind for one in found)


def test_slip_variances_divide_by_n_minus_1_and_are_cut() -> None:
    found = audit(table(SQUARES), name="table 2")
    assert kinds(found)["variance_n_minus_1"] == 10
    resnet = found[0]
    assert resnet.where == "table 2: ResNet50 external, variance_printed"
    assert (resnet.printed, resnet.expected) == ("0.0902", "0.0790")
    cut = next(one for one in found if one.kind == "variance_cut")
    assert "VGG-16 internal, ViT external, Swin internal" in cut.sentence


def test_slip_swin_cells_are_squares_of_accuracies() -> None:
    found = audit(table(SQUARES), reference=table(ACCURACIES))
    squares = {one.where: one for one in found if one.kind == "square_of_accuracy"}
    assert set(squares) == {"Swin internal, blur_object", "Swin internal, segmented_image"}
    assert "75.02" in squares["Swin internal, blur_object"].sentence
    assert "80.64" in squares["Swin internal, segmented_image"].sentence
    assert squares["Swin internal, segmented_image"].expected == "0.42"
    assert "suspected_square" not in kinds(found)
    assert "square_off" not in kinds(found)


def test_slip_swin_cells_are_suspected_without_the_accuracies() -> None:
    found = [one for one in audit(table(SQUARES)) if one.kind == "suspected_square"]
    assert [one.printed for one in found] == ["56.28", "65.03"]
    assert "75.02%" in found[0].sentence


def test_slip_mu_is_two_numbers() -> None:
    found = [one for one in audit(table(SQUARES), reference=table(ACCURACIES)) if one.kind == "two_mu"]
    implied = {one.where.split()[0]: (float(one.expected), float(one.printed)) for one in found}
    expected = {
        "ResNet50": (0.9524, 0.803),
        "DenseNet121": (0.974, 0.862),
        "VGG-16": (0.938, 0.691),
        "ViT": (0.934, 0.787),
        "Swin": (0.9075, 0.741),
    }
    assert implied == {model: pytest.approx(pair, abs=6e-4) for model, pair in expected.items()}


def test_printed_scores_are_one_minus_variances_and_a_wrong_one_is_found() -> None:
    assert kinds(audit(table(SQUARES)))["score_off"] == 0
    wrong = audit(table(SQUARES.replace("0.8845", "0.8945")))
    assert [(one.printed, one.expected) for one in wrong if one.kind == "score_off"] == [("0.8945", "0.8846")]
    rows = "a,0.0902,0.0112,0.8986\nb,0.0902,0.0112,0.9086\nc,0.2,0.1,0.7\n"
    side_by_side = table("model,variance_cross,variance_inner,score\n" + rows)
    assert [one.where for one in audit(side_by_side)] == ["b, score"]


def test_no_slip_visformer_is_within_input_rounding() -> None:
    assert audit(table(FMR_1)) == []
    assert audit(table(FMR_1), n=None, reference=None) == []


def test_slip_fmr_that_is_not_pa_over_sa() -> None:
    found = audit(table(FMR_1.replace("59.87", "59.89")))
    assert [(one.kind, one.where, one.printed, one.expected) for one in found] == [
        ("fmr_not_ratio", "ImageNet Visformer, fmr", "59.89", "59.86")
    ]
    # Without SA, the pairs of a row must agree on one; a reference gives it.
    assert audit(table(FMR_3)) == []
    assert audit(table(FMR_3), reference=table(FMR_1)) == []
    odd = audit(table(FMR_3.replace("43.43", "44.43")))
    assert [one.where for one in odd] == ["SIN, iddpm_fmr"]
    known = audit(table(FMR_3.replace("42.63", "42.83")), reference=table(FMR_1))
    assert [(one.where, one.expected) for one in known] == [("ResNet50, iddpm_fmr", "42.63")]


def test_slip_table_1_quotes_table_13() -> None:
    found = audit(table(FMR_1), reference=table(FMR_13))
    assert [(one.kind, one.printed) for one in found] == [("repeated_total", "92.3, 30.28")]
    assert found[0].where.startswith("9-class IN")


def test_table_13_is_whole_counts_and_pooled() -> None:
    assert audit(table(FMR_13), n=150) == []
    assert audit(table(FMR_13)) == []


def test_slip_no_cell_is_a_whole_count() -> None:
    found = audit(table(FMR_13.replace("93.33", "93.40")), n=150)
    assert [(one.kind, one.printed, one.expected) for one in found][:2] == [("impossible_count", "93.40", "93.33")] * 2
    fmr = audit(table(FMR_13.replace("31.55", "31.85")), n=150)
    assert "impossible_count" in kinds(fmr) and fmr[0].where == "Cat, fmr"
    own = table("class,n,accuracy\ncat,30,93.33\ndog,40,93.33\n")
    assert [one.where for one in audit(own)] == ["dog, accuracy"]
    named = table("model,accuracy,top-1\nx,50.0,33.3\ny,25.0,66.7\n")
    assert [one.where for one in audit(named, n=12)] == []
    assert [one.where for one in audit(named, n=10)] == ["x, top-1", "y, accuracy", "y, top-1"]
    # Other columns are accuracies if nearly all of their cells are shares of the images.
    rows = [f"m{k},{100 * (k + 5) / 12:.1f},{100 * k / 12:.2f}" for k in range(8)]
    scenes = "model,grey,blur\n" + "\n".join(rows) + "\n"
    assert audit(table(scenes), n=12) == [] and audit(table(scenes), n=11) == []
    assert [one.where for one in audit(table(scenes.replace(",25.00", ",26.00")), n=12)] == ["m3, blur"]


def test_slip_total_is_the_mean_of_classes() -> None:
    mean = FMR_13.replace("30.28", "32.04")
    found = audit(table(mean))
    assert [(one.kind, one.printed, one.expected) for one in found] == [("total_is_mean", "32.04", "30.28")]
    typed_wrong = audit(table(mean.replace("62.21", "61.21")))
    assert kinds(typed_wrong) == {"total_off": 1}
    unequal = "class,n,accuracy\ncat,100,90.00\ndog,300,50.00\nTotal,400,{}\n"
    assert audit(table(unequal.format("60.00"))) == []
    assert kinds(audit(table(unequal.format("70.00")))) == {"total_is_mean": 1}
    assert audit(table(unequal.format("70.00").replace("Total", "Mean"))) == []


def test_slip_t_values_in_a_p_column() -> None:
    regression = """term,estimate,standard_error,p
Class[1],0.1340,0.02238,5.99
Class[2],-0.04867,0.02238,0.03
Class[3],0.01044,0.02238,0.466
Class[4],0.01044,0.02238,0.641
Class[5],0.1340,0.02238,<0.0001
"""
    found = audit(table(regression))
    assert [(one.kind, one.where) for one in found] == [("t_in_p", "Class[1], p"), ("t_in_p", "Class[3], p")]
    assert float(found[1].expected) == pytest.approx(0.641, abs=0.01)
    t = audit(table("term,estimate,standard_error,t\na,0.1340,0.02238,5.99\nb,0.1340,0.02238,4.99\n"))
    assert [(one.kind, one.where, one.expected) for one in t] == [("t_off", "b, t", "5.99")]


def test_slip_saving_over_the_wrong_time() -> None:
    speed = 'dataset,before,after,saving\n9-class,521.5,455.4,12.7\nImageNet,"52,602.4","40,946.1",28.5 %\n'
    found = audit(table(speed))
    assert [(one.kind, one.where, one.printed, one.expected) for one in found] == [
        ("wrong_denominator", "ImageNet, saving", "28.5 %", "22.2")
    ]
    assert kinds(audit(table(speed.replace("28.5", "35.5")))) == {"change_off": 1}


def test_a_variance_that_fits_nothing() -> None:
    off = audit(table("model,a,b,c,variance\nx,0.01,0.04,0.09,0.0900\ny,0.04,0.04,0.04,0.0400\n"))
    assert [(one.kind, one.expected) for one in off] == [("variance_off", "0.0467")]


@pytest.mark.skipif(not FACTS.is_dir(), reason="the folder of printed tables is not next to this checkout")
def test_the_fact_files_themselves() -> None:
    clean = ["fmr_table1", "fmr_table3", "fmr_table13", "ximagenet12_figure9", "ximagenet12_table1"]
    for name in clean:
        assert audit(read_table(FACTS / f"{name}.csv")) == [], name
    assert audit(read_table(FACTS / "fmr_table3.csv"), reference=read_table(FACTS / "fmr_table1.csv")) == []
    squares = read_table(FACTS / "ximagenet12_table2.csv")
    assert kinds(audit(squares)) == {"variance_n_minus_1": 10, "variance_cut": 1, "suspected_square": 2}
    both = audit(squares, reference=read_table(FACTS / "ximagenet12_table1.csv"))
    assert kinds(both) == {"variance_n_minus_1": 10, "variance_cut": 1, "square_of_accuracy": 2, "two_mu": 5}


def test_read_table_keeps_what_was_printed(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("model, fmr\nNA,92.30\nb,\n")
    got = read_table(path)
    assert got.to_dict("list") == {"model": ["NA", "b"], "fmr": ["92.30", ""]}
    with pytest.raises(UserError, match="no table"):
        read_table(tmp_path / "none.csv")
    path.write_text("")
    with pytest.raises(UserError, match="cannot be read"):
        read_table(path)
    path.write_bytes(b"\xff\xfe\x00a,b\n")
    with pytest.raises(UserError, match="cannot be read"):
        read_table(path)
    with pytest.raises(UserError, match="no rows"):
        audit(table("model,fmr\n"))
    with pytest.raises(UserError, match="at least 1"):
        audit(table(FMR_13), n=0)
