"""The words that random schemas are named with, and the words that questions are made of."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TABLES = _words("""
members rooms games songs farms trees cars boats trains teams players matches films actors shops clients
bills cities rivers roads bridges hotels guests bookings meals recipes plants animals cages zoos labs tests
samples staff tasks projects courses exams grades classes pupils clubs events tickets stores items parts
machines repairs garages drivers trips routes stations stops parks lakes museums paintings artists galleries
sales gifts parcels letters phones calls plans users posts comments votes parties banks loans accounts cards
policies claims agents houses streets owners dogs cats horses races coaches leagues cups goals poems plays
stories writers editors journals papers reviews prizes judges cases lawyers crimes ships ports cargos
sailors captains islands mines metals crops fields tractors barns cows offices desks workers shifts jobs
""")
NUMBERS = _words("""
age price cost size weight height length width speed depth score points rank level stock amount quantity
salary rent tax bonus debt budget income profit seats rooms floors pages copies words lines hours minutes
days weeks months year born built opened founded distance area volume power heat energy rate share fee fine
tips wins losses games visits orders clicks likes views errors faults repairs delay duration capacity
population temperature pressure rainfall fuel mileage
""")
CATEGORIES = _words("""
city country region state town color type kind style brand maker model shape material status grade rank
class field topic subject language season month weekday section sector branch role job title team club
league origin target source species breed habitat climate soil engine fuel theme mood format size level
category department district ward street shift
""")
NAMES = _words("""
name title label code nickname model surname alias
""")
VALUES = _words("""
Red Blue Green Black White Yellow Brown Orange Purple Silver Gold Copper Iron Steel Wood Glass Stone Paper
Cotton Leather Plastic Spring Summer Autumn Winter Monday Tuesday Friday Sunday North South East West Small
Medium Large Tiny Huge Fast Slow Warm Cold Hot Dry Wet New Old Open Closed Active Paused Public Private
Local Global Junior Senior Expert Novice Basic Plus Prime Alpha Beta Gamma Delta Sigma Omega Mars Venus
Saturn Jupiter Lion Tiger Bear Wolf Fox Eagle Hawk Owl Shark Whale Rose Lily Tulip Daisy Maple Birch Cedar
Apple Pear Plum Lemon Mango Peach Berry Rice Corn Wheat Bread Milk Tea Coffee Sugar Salt Honey Boston Dublin
Athens Prague Vienna Lisbon Seoul Hanoi Kyoto Milan Delhi Quito Sydney Zurich Geneva Munich Naples Porto
Riga Sofia Spain Italy Greece Turkey Egypt Chile Mexico Canada Norway Sweden Poland Russia China Nepal Ghana
Sudan Adam Eva Noah Emma Liam Olga Igor Nina Paul Rosa Tim Vera Will Yuri Zara Ben Cora Dirk Elsa Finn Greta
Hans Inge Jens Karl Lena Mark Nora Otto Petra
""")
SYLLABLES = _words("""
ba be bo da de do fa fi ga go ka ke ko la le li lo ma me mi mo na ne no pa pe po ra re ri ro sa se si so ta
te ti to va ve vo
""")
QUESTION_WORDS = _words("""
how many are is there for each what the of with whose above below greater less than at least most between
and or not list show find count all do does have has different distinct which highest lowest average mean
total maximum minimum number sorted by descending ascending from high to low without any rows error no such
column wrong arguments function ambiguous misuse aggregate near syntax in a an on that who where when was
were it more fewer first last query
""")
SQL_WORDS = _words("""
abort action add after all alter always analyze and as asc attach autoincrement before begin between by
cascade case cast check collate column commit conflict constraint create cross current database default
deferrable deferred delete desc detach distinct do drop each else end escape except exclude exclusive exists
explain fail filter first following for foreign from full generated glob group groups having if ignore
immediate in index indexed initially inner insert instead intersect into is isnull join key last left like
limit match materialized max min avg sum count natural no not nothing notnull null nulls of offset on or
order others outer over partition plan pragma preceding primary query raise range recursive references
regexp reindex release rename replace restrict returning right rollback row rows savepoint select set table
temp temporary then ties to transaction trigger true false unbounded union unique update using vacuum values
view virtual when where window with without ok id
""")
