"""What measurements say of the machine that they were made on."""

from bagpipe_hpc.tools.conditions import processor_name

X86 = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
stepping\t: 1

processor\t: 1
cpu family\t: 25
model\t\t: 17
model name\t: Another
"""

ARM = """\
processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd sve
CPU implementer\t: 0x41
"""


def test_generations_of_one_name_are_told_apart() -> None:
    assert processor_name(X86) == "AMD EPYC (family 26, model 2)"


def test_a_name_without_a_family_stands_alone() -> None:
    assert processor_name("model name\t: POWER9, altivec supported\nmodel\t: 9006-22P\n") == "POWER9, altivec supported"


def test_a_processor_without_a_name_has_none() -> None:
    assert processor_name(ARM) == ""
    assert processor_name("") == ""
